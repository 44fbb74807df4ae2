//! `mask_digits`.

use model::{Issue, ResponseHead};
use schemars::JsonSchema;
use serde::Deserialize;

use super::settings::Settings;
use super::{
    BadBody, Coded, Coder, Compiling, Extent, FilterEntry, Rank, ResponseBodyStep, ResponseView, Stage, Steps, Turn,
    Turning,
};

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<MaskDigits>("mask_digits", DOC);

const DOC: &str = r#"Replaces digits in the bodies of responses.

```yaml
filters:
  - mask_digits: { by: X }
```
"#;

/// What stands in place of digits.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MaskDigits {
    /// One character of ASCII.
    by: char,
}

impl Settings for MaskDigits {
    fn compile(self, _: &mut Compiling<'_>) -> Result<Steps, Issue> {
        let by = u8::try_from(self.by).ok().filter(u8::is_ascii_graphic);
        let by = by.ok_or_else(|| Issue::at("by", format!("`{}` is not a character of ASCII", self.by)))?;
        Ok(Steps::of_response_body(MaskDigitsStep { by }))
    }
}

struct MaskDigitsStep {
    by: u8,
}

impl ResponseBodyStep for MaskDigitsStep {
    fn rank(&self) -> Rank {
        Rank::Rewrite
    }

    fn begin(
        &self,
        _: &mut ResponseHead,
        _: &ResponseView<'_>,
        extent: Extent,
        _: &mut Turn<'_>,
    ) -> Option<(Stage, Extent)> {
        // As many bytes come out as go in, so that the length in the head still holds.
        (extent != Extent::Absent).then(|| (Stage::Coder(Box::new(Mask(self.by))), extent))
    }
}

struct Mask(u8);

impl Coder for Mask {
    fn code(&mut self, input: &[u8], room: &mut [u8], turning: Turning) -> Result<Coded, BadBody> {
        let count = input.len().min(room.len());
        for (out, byte) in room.iter_mut().zip(&input[..count]) {
            *out = if byte.is_ascii_digit() { self.0 } else { *byte };
        }
        let is_done = turning != Turning::More && count == input.len();
        Ok(Coded { read: count, written: count, is_done })
    }
}
