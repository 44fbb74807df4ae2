-- For wrk: prints the whole distribution of latencies when it ends. Nothing of it runs for a single request.
function done(_, latency, _)
  for percentile = 1, 99 do
    print(string.format("lab-percentile %d %d", percentile, latency:percentile(percentile)))
  end
  for _, percentile in ipairs({ 99.5, 99.9, 99.95, 99.99, 99.999 }) do
    print(string.format("lab-percentile %g %d", percentile, latency:percentile(percentile)))
  end
  print(string.format("lab-percentile 100 %d", latency.max))
end
