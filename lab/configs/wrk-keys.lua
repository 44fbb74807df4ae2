-- For wrk: each request has another of a million values of `x-key`, in an order without neighbours. Beside that as wrk.lua.
dofile((debug.getinfo(1, "S").source:match("^@(.*/)") or "") .. "wrk.lua")

local key, head = 0, ""

function init(_)
  head = string.sub(wrk.format(), 1, -3) .. "X-Key: k"
end

function request()
  -- No factor of a million, so that all keys come before one comes again.
  key = (key + 618033) % 1000000
  return head .. key .. "\r\n\r\n"
end
