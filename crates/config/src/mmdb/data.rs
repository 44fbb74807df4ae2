//! Values as the format writes them: maps, lists, texts and numbers, with pointers to what is there already.

use std::cell::Cell;

use model::map::VALUE_BYTES_MAX;

/// What is wrong with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bad(pub &'static str);

const ENDS: Bad = Bad("a value ends beyond the data");
/// Values within values.
const DEPTH_MAX: usize = 32;
/// Maps within maps whose fields are named.
const NAMED_DEPTH_MAX: usize = 3;
/// Values that are looked at in one file: the records of a large one have some ten million.
const VALUES_MAX: u64 = 400_000_000;

/// A section of values.
pub(super) struct Data<'a> {
    bytes: &'a [u8],
    /// Values that may still be looked at.
    left: Cell<u64>,
}

/// One value. Those of lists and maps follow it.
enum Item<'a> {
    Text(&'a [u8]),
    Bytes,
    Double(f64),
    Unsigned(u128),
    Signed(i64),
    Truth(bool),
    Map(usize),
    List(usize),
    Pointer(usize),
}

impl<'a> Data<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, left: Cell::new(VALUES_MAX) }
    }

    /// Returns a field of the record at an offset as text; `None` if it has none, or another kind of value.
    pub(super) fn text_at(&self, offset: usize, path: &[&str]) -> Result<Option<String>, Bad> {
        let Some((item, _)) = self.find(offset, path)? else { return Ok(None) };
        Ok(match item {
            Item::Text(bytes) => {
                // Texts may lie over one another, and each takes memory of its own.
                let left = self.left.get().checked_sub(bytes.len() as u64);
                let left = left.filter(|_| bytes.len() <= VALUE_BYTES_MAX).ok_or(Bad("its values are too long"))?;
                self.left.set(left);
                let text = String::from_utf8_lossy(bytes);
                Some(text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect())
            }
            Item::Double(number) => Some(number.to_string()),
            Item::Unsigned(number) => Some(number.to_string()),
            Item::Signed(number) => Some(number.to_string()),
            Item::Truth(flag) => Some(flag.to_string()),
            Item::Bytes | Item::Map(_) | Item::List(_) | Item::Pointer(_) => None,
        })
    }

    /// Returns a field of the map at an offset that is a whole number.
    pub(super) fn number_at(&self, offset: usize, name: &str) -> Result<Option<u64>, Bad> {
        match self.find(offset, &[name])? {
            Some((Item::Unsigned(number), _)) => Ok(u64::try_from(number).ok()),
            _ => Ok(None),
        }
    }

    /// Returns the names of fields of the first record, at most so many.
    pub(super) fn fields(&self, max: usize) -> Vec<String> {
        let mut names = Vec::new();
        // What cannot be read has no names.
        let _ = self.name_fields(0, "", (&mut names, max));
        names
    }

    fn name_fields(&self, offset: usize, before: &str, (names, max): (&mut Vec<String>, usize)) -> Result<usize, Bad> {
        let (item, next) = self.item(offset)?;
        if names.len() >= max || before.matches('.').count() > NAMED_DEPTH_MAX {
            return self.skip(offset, 0);
        }
        match item {
            Item::Map(count) => {
                let mut at = next;
                for _ in 0..count {
                    let (key, value) = self.key(at)?;
                    let name = format!("{before}{}", String::from_utf8_lossy(key));
                    let is_map = matches!(self.target(value)?.0, Item::Map(_));
                    at = match is_map {
                        true => {
                            self.name_fields(self.resolved(value)?, &format!("{name}."), (names, max))?;
                            self.skip(value, 0)?
                        }
                        false => {
                            names.push(name);
                            self.skip(value, 0)?
                        }
                    };
                    if names.len() >= max {
                        break;
                    }
                }
                Ok(at)
            }
            _ => Ok(next),
        }
    }

    /// Returns what a path leads to, with the offset behind it.
    fn find(&self, offset: usize, path: &[&str]) -> Result<Option<(Item<'a>, usize)>, Bad> {
        let (item, next) = self.target(offset)?;
        let Some((first, rest)) = path.split_first() else { return Ok(Some((item, next))) };
        let mut at = next;
        match item {
            Item::Map(count) => {
                for _ in 0..count {
                    let (key, value) = self.key(at)?;
                    if key == first.as_bytes() {
                        return self.find(value, rest);
                    }
                    at = self.skip(value, 0)?;
                }
                Ok(None)
            }
            Item::List(count) => {
                let Some(wanted) = first.parse::<usize>().ok().filter(|wanted| *wanted < count) else {
                    return Ok(None);
                };
                for _ in 0..wanted {
                    at = self.skip(at, 0)?;
                }
                self.find(at, rest)
            }
            _ => Ok(None),
        }
    }

    /// Returns a key of a map, and the offset of its value.
    fn key(&self, offset: usize) -> Result<(&'a [u8], usize), Bad> {
        let (item, next) = self.item(offset)?;
        let item = if let Item::Pointer(to) = item { self.target(to)?.0 } else { item };
        match item {
            Item::Text(key) => Ok((key, next)),
            _ => Err(Bad("a key of a map is no text")),
        }
    }

    /// Returns the offset behind a value and all that it holds.
    fn skip(&self, offset: usize, depth: usize) -> Result<usize, Bad> {
        if depth > DEPTH_MAX {
            return Err(Bad("its values are nested too deeply"));
        }
        let (item, mut next) = self.item(offset)?;
        let count = match item {
            Item::Map(count) => count.saturating_mul(2),
            Item::List(count) => count,
            _ => 0,
        };
        for _ in 0..count {
            next = self.skip(next, depth + 1)?;
        }
        Ok(next)
    }

    /// Returns the value at an offset, or the one that it points to. A pointer never leads to another one.
    fn target(&self, offset: usize) -> Result<(Item<'a>, usize), Bad> {
        let found = self.item(self.resolved(offset)?)?;
        if matches!(found.0, Item::Pointer(_)) { Err(Bad("a pointer leads to another one")) } else { Ok(found) }
    }

    fn resolved(&self, offset: usize) -> Result<usize, Bad> {
        Ok(if let (Item::Pointer(to), _) = self.item(offset)? { to } else { offset })
    }

    /// Returns the value at an offset, and where it ends, or what it holds begins.
    fn item(&self, offset: usize) -> Result<(Item<'a>, usize), Bad> {
        let left = self.left.get().checked_sub(1).ok_or(Bad("it has too many values"))?;
        self.left.set(left);
        let control = *self.bytes.get(offset).ok_or(ENDS)?;
        let (mut kind, mut at) = (control >> 5, offset + 1);
        if kind == 1 {
            return self.pointer(control, at);
        }
        if kind == 0 {
            kind = self.bytes.get(at).ok_or(ENDS)?.checked_add(7).ok_or(Bad("a value has an unknown type"))?;
            at += 1;
        }
        let size = match control & 0x1f {
            size @ 0..=28 => usize::from(size),
            more => {
                let count = usize::from(more - 28);
                let base = [29, 285, 65_821][count - 1];
                let size = base + self.number(at, count)? as usize;
                at += count;
                size
            }
        };
        match kind {
            7 => return Ok((Item::Map(size), at)),
            11 => return Ok((Item::List(size), at)),
            14 => return Ok((Item::Truth(size != 0), at)),
            _ => {}
        }
        let end = at.checked_add(size).filter(|end| *end <= self.bytes.len()).ok_or(ENDS)?;
        let bytes = &self.bytes[at..end];
        let item = match kind {
            2 => Item::Text(bytes),
            3 => Item::Double(f64::from_be_bytes(bytes.try_into().map_err(|_| Bad("a double has not 8 bytes"))?)),
            4 => Item::Bytes,
            5 | 6 | 9 | 10 if size <= 16 => Item::Unsigned(self.number(at, size)?),
            8 if size <= 4 => Item::Signed((self.number(at, size)? as u32 as i32).into()),
            15 => {
                let four = bytes.try_into().map_err(|_| Bad("a float has not 4 bytes"))?;
                Item::Double(f32::from_be_bytes(four).into())
            }
            _ => return Err(Bad("a value has an unknown type")),
        };
        Ok((item, end))
    }

    fn pointer(&self, control: u8, at: usize) -> Result<(Item<'a>, usize), Bad> {
        let (size, high) = (usize::from(control >> 3 & 3), usize::from(control & 7));
        let low = self.number(at, size + 1)? as usize;
        let to = match size {
            0 => high << 8 | low,
            1 => (high << 16 | low) + 2_048,
            2 => (high << 24 | low) + 526_336,
            _ => low,
        };
        Ok((Item::Pointer(to), at + size + 1))
    }

    /// Returns a number of so many bytes, 16 at most.
    fn number(&self, at: usize, size: usize) -> Result<u128, Bad> {
        let bytes = at.checked_add(size).and_then(|end| self.bytes.get(at..end)).ok_or(ENDS)?;
        Ok(bytes.iter().fold(0, |number, byte| number << 8 | u128::from(*byte)))
    }
}
