//! Printer columns that many kinds have.

use crate::object::PrinterColumn;

/// A column with the status of the `Ready` condition.
pub(crate) const READY_COLUMN: PrinterColumn =
    column("Ready", ".status.conditions[?(@.type==\"Ready\")].status");

/// A wide column with the reason of the `Ready` condition.
pub(crate) const REASON_COLUMN: PrinterColumn =
    PrinterColumn { priority: 1, ..column("Reason", ".status.conditions[?(@.type==\"Ready\")].reason") };

/// A text column that is always shown.
pub(crate) const fn column(name: &'static str, json_path: &'static str) -> PrinterColumn {
    PrinterColumn { name, kind: "string", json_path, priority: 0 }
}
