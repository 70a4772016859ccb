//! Operators that copy between host and device, told by the copies that they launched.

use super::owners::Owners;
use crate::trace::{DeviceEventKind, OpKind};
use hashbrown::HashSet;

/// For each row of `Trace::ops` whether it copies between host and device: the operator that launched the copy, and the
/// copying operators (`aten::to`, `aten::_to_copy`, `aten::copy_`) directly around it.
pub(super) fn find(owners: &Owners<'_>) -> Vec<bool> {
    let (ops, events) = (owners.trace().ops(), owners.trace().device_events());
    let is_transfer = |name: &str| name.contains("HtoD") || name.contains("DtoH");
    let launched: HashSet<u64> = (0..events.len())
        .filter(|i| events.kind()[*i] == DeviceEventKind::Memcpy && events.external_id()[*i] != 0)
        .filter(|i| is_transfer(owners.trace().str(events.name()[*i])))
        .map(|i| events.external_id()[i])
        .collect();
    if launched.is_empty() {
        return Vec::new();
    }
    let copies = owners.by_name(|name| matches!(name, "aten::copy_" | "aten::_to_copy" | "aten::to"));
    let mut marks = vec![false; ops.len()];
    for op in 0..ops.len() {
        if ops.kind()[op] == OpKind::Operator && copies.of(ops.name()[op]) && launched.contains(&ops.external_id()[op])
        {
            // Each row is marked once, so this ends soon: those above a marked one are marked already.
            let copying = |op: &usize| copies.of(ops.name()[*op]);
            for outer in owners.chain(op).take_while(copying) {
                if std::mem::replace(&mut marks[outer], true) {
                    break;
                }
            }
        }
    }
    marks
}
