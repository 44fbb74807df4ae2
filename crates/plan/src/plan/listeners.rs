//! Plans of listeners, with those of the plan before.

use std::sync::Arc;

use model::snapshot::Listener;

use super::{ListenerPlan, ListenerTarget};
use crate::addresses::AddressTable;
use crate::agents::AgentList;
use crate::limit::PerAddress;
use crate::table::Table;

/// Returns the plan of a listener: that of the plan before, if all of it is the same.
pub(super) fn listener_plan(
    listener: &Arc<Listener>,
    (target, no_keep_alive): (ListenerTarget, Option<AgentList>),
    (per_address, tracked): (Option<PerAddress>, Box<[Arc<Table>]>),
    old: Option<&Arc<ListenerPlan>>,
) -> Arc<ListenerPlan> {
    let are_same = |old: &ListenerPlan| old.tracked.iter().zip(&tracked).all(|(one, other)| Arc::ptr_eq(one, other));
    match old {
        Some(old) if old.listener == *listener && old.target.is_same(&target) && are_same(old) => old.clone(),
        _ => {
            let state = old.map_or_else(Arc::default, |old| old.state.clone());
            let admitted = admitted(listener, old);
            let listener = listener.clone();
            Arc::new(ListenerPlan { listener, target, admitted, per_address, tracked, no_keep_alive, state })
        }
    }
}

/// The table of a listener's list, which may be long: where the list is equal, that of the plan before.
fn admitted(listener: &Listener, old: Option<&Arc<ListenerPlan>>) -> Option<Arc<AddressTable>> {
    let list = listener.address_list.as_ref()?;
    let same = old.filter(|old| old.listener.address_list.as_ref() == Some(list));
    let table = same.and_then(|old| old.admitted.clone());
    Some(table.unwrap_or_else(|| Arc::new(AddressTable::of(list))))
}
