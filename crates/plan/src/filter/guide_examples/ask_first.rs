//! `ask_first`.

use std::sync::Arc;
use std::time::Duration;

use model::filter::CLUSTER_FORMAT;
use model::{Issue, RequestHead};
use schemars::JsonSchema;
use serde::Deserialize;

use super::settings::Settings;
use super::{Call, CalledCluster, Compiling, FilterEntry, Flow, Found, Need, RequestStep, Steps, Turn};

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<AskFirst>("ask_first", DOC);

const DOC: &str = r#"Sends the head of each request to a cluster first, and refuses those for which it does not answer 200.

```yaml
filters:
  - ask_first: { cluster: gatekeeper }
```
"#;

/// Whom to ask.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AskFirst {
    /// The cluster that decides.
    #[schemars(extend("format" = CLUSTER_FORMAT))]
    cluster: String,
}

impl Settings for AskFirst {
    fn compile(self, compiling: &mut Compiling<'_>) -> Result<Steps, Issue> {
        Ok(Steps::of_request(AskFirstStep { cluster: compiling.cluster(&self.cluster, "cluster") }))
    }
}

struct AskFirstStep {
    cluster: CalledCluster,
}

impl RequestStep for AskFirstStep {
    fn apply(&self, head: &mut RequestHead, _: &mut Turn<'_>) -> Flow {
        Flow::Need(Need::Call(Box::new(Call {
            cluster: self.cluster,
            head: head.clone(),
            body: Arc::from([]),
            timeout: Duration::from_secs(1),
            response_bytes_max: 1024,
        })))
    }

    fn resume(&self, _: &mut RequestHead, found: Found<'_>, _: &mut Turn<'_>) -> Flow {
        match found {
            Found::Call(Ok(reply)) if reply.head.status == 200 => Flow::Continue,
            Found::Call(Ok(_)) => Flow::refuse(403, "not allowed"),
            _ => Flow::refuse(503, "the gatekeeper does not answer"),
        }
    }
}
