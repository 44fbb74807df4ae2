//! Values of the operator's own in the PROXY headers that endpoints are sent.

use model::limits::{PROXY_OWN_TLV_BYTES_MAX, PROXY_OWN_TLVS_BYTES_MAX};
use model::proxy_protocol::SendProxy;
use model::snapshot::Cluster;
use model::{Facts, Issue, RequestHead};

use crate::filter::Notes;
use crate::filter::template::Template;
use crate::filter::variables::{Stage, Values};

/// Types with their values, as they are sent.
pub type Tlvs = Vec<(u8, Vec<u8>)>;

/// See the module.
#[derive(Debug)]
pub struct OwnTlvs {
    /// Those without variables come first: what clients choose must not push them out.
    list: Box<[(u8, Template)]>,
    has_variables: bool,
}

impl OwnTlvs {
    /// Compiles those of a cluster, if it has any.
    ///
    /// # Errors
    /// A template that is wrong, or that names a variable without a value before there is a response, with its path from the root of the
    /// configuration.
    pub(crate) fn compile(cluster: &Cluster) -> Result<Option<Box<Self>>, Vec<Issue>> {
        let Some(SendProxy::V2(tlvs)) = &cluster.proxy_protocol else { return Ok(None) };
        let mut issues = Vec::new();
        let mut list = Vec::with_capacity(tlvs.custom.len());
        for own in &tlvs.custom {
            match Template::compile(&own.value, Stage::Request) {
                Ok(template) => list.push((own.kind, template)),
                Err(issue) => {
                    let path = format!("clusters/{}/proxy_protocol/custom/{}", cluster.name, own.key);
                    issues.push(issue.below(&path));
                }
            }
        }
        if !issues.is_empty() {
            return Err(issues);
        }
        list.sort_by_key(|(_, template)| template.as_literal().is_none());
        let has_variables = list.iter().any(|(_, template)| template.as_literal().is_none());
        Ok((!list.is_empty()).then(|| Box::new(Self { list: list.into(), has_variables })))
    }

    /// Returns whether they may differ from one exchange to another of the same client's connection.
    pub fn has_variables(&self) -> bool {
        self.has_variables
    }

    /// Returns the values for one exchange, with what filters have noted, or one stream, which has no request. A value with variables is left out where it is empty or
    /// beyond the bounds; so is what does not fit behind those before it.
    pub fn values(&self, request: Option<(&RequestHead, &Notes)>, facts: &Facts<'_>) -> Tlvs {
        let none = RequestHead::default();
        let values = match request {
            Some((request, notes)) => Values::of_request(request, facts).with_notes(notes),
            None => Values::of_request(&none, facts),
        };
        let mut tlvs = Tlvs::with_capacity(self.list.len());
        let mut total = 0;
        for (kind, template) in &self.list {
            let mut value = Vec::new();
            template.write(&values, &mut value);
            let is_fit = value.len() <= PROXY_OWN_TLV_BYTES_MAX && total + 3 + value.len() <= PROXY_OWN_TLVS_BYTES_MAX;
            if is_fit && (!value.is_empty() || template.as_literal().is_some()) {
                total += 3 + value.len();
                tlvs.push((*kind, value));
            }
        }
        tlvs
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use model::Scheme;
    use model::proxy_protocol::{OwnTlv, Tlvs as Written};
    use model::snapshot::Balance;

    use super::*;
    use crate::testing;

    fn cluster(custom: &[(u8, &str)]) -> Cluster {
        let custom = custom.iter().map(|(kind, value)| OwnTlv {
            key: format!("{kind:#x}"),
            kind: *kind,
            value: (*value).to_owned(),
        });
        let tlvs = Written { custom: custom.collect(), ..Written::default() };
        let mut cluster = testing::cluster("site", Balance::First, Vec::new());
        Arc::get_mut(&mut cluster.settings).unwrap().proxy_protocol = Some(SendProxy::V2(tlvs));
        cluster
    }

    fn values(custom: &[(u8, &str)], request: Option<&RequestHead>) -> Tlvs {
        let listener = "web".into();
        let facts = Facts {
            peer: "192.0.2.7:40000".parse().unwrap(),
            client: "192.0.2.7".parse().unwrap(),
            local: "127.0.0.1:8080".parse().unwrap(),
            scheme: Scheme::Http,
            tls: None,
            sender: None,
            listener: &listener,
            request_id: "id-1",
            user: Some(&[b'x'; 200]),
        };
        let notes = Notes::default();
        let request = request.map(|request| (request, &notes));
        OwnTlvs::compile(&cluster(custom)).unwrap().map(|own| own.values(request, &facts)).unwrap_or_default()
    }

    #[test]
    fn variables_stand_for_what_is_known_and_values_without_them_come_first() {
        let custom =
            [(0xe0, "{client_ip}"), (0xe1, "blue"), (0xe2, ""), (0xe3, "{request_header:x-a}"), (0xe4, "{{}}")];
        let told = values(&custom, None);
        let wanted: [(u8, &[u8]); 4] = [(0xe1, b"blue"), (0xe2, b""), (0xe4, b"{}"), (0xe0, b"192.0.2.7")];
        assert_eq!(told, wanted.map(|(kind, value)| (kind, value.to_vec())));
        assert!(values(&[], None).is_empty());
    }

    #[test]
    fn what_clients_choose_is_bounded_and_pushes_nothing_out() {
        let custom = [
            (0xe0, "{user}"),
            (0xe1, "{user}{user}"),
            (0xe2, "{user}"),
            (0xe3, &*"y".repeat(90)),
            (0xe4, "{listener}"),
        ];
        let told = values(&custom, None);
        assert_eq!(
            told.iter().map(|(kind, value)| (*kind, value.len())).collect::<Vec<_>>(),
            [(0xe3, 90), (0xe0, 200)]
        );
    }

    #[test]
    fn unknown_variables_and_those_of_responses_are_issues_with_their_place() {
        let issues = OwnTlvs::compile(&cluster(&[(0xe1, "{client_pi}"), (0xe2, "{status}"), (0xe3, "{")])).unwrap_err();
        let told: Vec<_> = issues.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "clusters/site/proxy_protocol/custom/0xe1: there is no variable `{client_pi}` (did you mean `client_ip`?)",
                "clusters/site/proxy_protocol/custom/0xe2: `{status}` has no value before there is a response (use it in a filter \
                 for responses, such as set_response_header)",
                "clusters/site/proxy_protocol/custom/0xe3: `{` is never closed in `{`: write `{{` for a brace",
            ]
        );
    }
}
