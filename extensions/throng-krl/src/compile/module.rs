//! Names of modules: `domain:name`.

use super::{Compiler, Operation};
use crate::host::CallKind;
use crate::library::ModuleFunction;
use crate::program::{ModuleReference, ModuleTarget};
use crate::syntax::Location;
use std::sync::Arc;

/// The modules that the host answers.
const HOST: [&str; 7] = ["ctx", "event", "http", "schedule", "wrangler", "subscription", "meta"];
/// The members of `meta`.
const META: [&str; 14] = [
    "eci",
    "host",
    "inEvent",
    "inQuery",
    "picoId",
    "rid",
    "rid_url",
    "ruleName",
    "rule_name",
    "rulesetAuthor",
    "rulesetConfig",
    "rulesetName",
    "rulesetURI",
    "txnId",
];
/// The properties of `event` that the machine answers itself.
const EVENT: [&str; 8] = ["eci", "domain", "name", "type", "attrs", "attr", "eid", "time"];
/// Modules of the original that are not supported here.
const LEFT_OUT: [&str; 2] = ["ursa", "dido"];

impl Compiler {
    /// Emits a use of a module's name. The arguments are on the stack already.
    pub(super) fn module(
        &mut self,
        domain: &Arc<str>,
        name: &Arc<str>,
        shape: u32,
        kind: CallKind,
        location: Location,
    ) {
        let Some(target) = self.module_target(domain, name, kind, location) else {
            self.emit(Operation::Null);
            return;
        };
        let is_same =
            |known: &ModuleReference| known.target == target && known.domain == *domain && known.name == *name;
        let reference = self.references.iter().position(is_same).unwrap_or_else(|| {
            self.references.push(ModuleReference {
                target,
                domain: Arc::clone(domain),
                name: Arc::clone(name),
            });
            self.references.len() - 1
        });
        let reference = u32::try_from(reference).unwrap_or(u32::MAX);
        self.emit(Operation::Module { reference, shape, kind });
    }

    fn module_target(&mut self, domain: &str, name: &str, kind: CallKind, location: Location) -> Option<ModuleTarget> {
        if let Some(used) = self.uses.iter().position(|used| &*used.alias == domain) {
            return Some(ModuleTarget::Used(self.place(used, "modules")));
        }
        if domain == "event" && EVENT.contains(&name) {
            return Some(ModuleTarget::Event);
        }
        if domain == "event" && name != "send" {
            self.error(location, format!("the module `event` has no `{name}`"));
            return None;
        }
        if (domain, name, kind) == ("event", "send", CallKind::Function) {
            self.error(location, "Not a function: Action");
            return None;
        }
        if domain == "meta" && !META.contains(&name) {
            self.warn(
                location,
                format!("the module `meta` has no `{name}`: using it is an error"),
            );
        }
        if HOST.contains(&domain) {
            return Some(ModuleTarget::Host);
        }
        match ModuleFunction::of(domain, name) {
            Ok(Some(function)) => return Some(ModuleTarget::Own(function)),
            Ok(None) => self.error(location, format!("the module `{domain}` has no `{name}`")),
            Err(()) if LEFT_OUT.contains(&domain) => {
                self.error(location, format!("the module `{domain}` is not part of this engine"));
            }
            Err(()) => self.error(
                location,
                format!("unknown module `{domain}`: nothing in `meta` says `use module … alias {domain}`"),
            ),
        }
        None
    }
}
