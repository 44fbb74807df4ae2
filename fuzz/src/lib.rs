//! What the fuzz targets share: how an input is cut into pieces, as a network would cut it.
//!
//! Start reading at `fuzz_targets/`; each target says what must hold for every input.

/// The first byte of an input chooses; the others are the message. Empty inputs choose nothing.
pub fn choice_and_message(input: &[u8]) -> (u8, &[u8]) {
    match input {
        [choice, message @ ..] => (*choice, message),
        [] => (0, &[]),
    }
}

/// Ends of the pieces that `len` bytes arrive in: always the last end, before it others that `choice` makes. 0 gives the
/// whole at once, 1 single bytes, others steps of varying length.
pub fn cuts(choice: u8, len: usize) -> impl Iterator<Item = usize> {
    let mut state = u32::from(choice);
    let mut end = 0;
    let mut ended = false;
    std::iter::from_fn(move || {
        if ended {
            return None;
        }
        state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        end += match choice {
            0 => len,
            1 => 1,
            _ => 1 + (state >> 16) as usize % (1 + usize::from(choice)),
        };
        end = end.min(len);
        ended = end == len;
        Some(end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_rise_and_end_at_the_end() {
        for choice in 0..=255 {
            for len in 0..50 {
                let all: Vec<_> = cuts(choice, len).collect();
                assert_eq!(all.last(), Some(&len));
                assert!(all.windows(2).all(|pair| pair[0] < pair[1]), "{choice} {len} {all:?}");
            }
        }
    }
}
