use super::{Compiler, Operation};
use crate::syntax::ast::{
    EntityVariable, EventType, ExpressionKind, Guard, RaiseStatement, ScheduleStatement, Statement, StatementKind,
};

impl Compiler {
    pub(super) fn statements(&mut self, statements: &[Statement]) {
        for statement in statements {
            self.location = statement.location;
            let mut skips = Vec::new();
            match &statement.guard {
                Some(Guard::OnFinal) => {
                    for slot in self.loops.clone() {
                        skips.push(self.emit_jump(Operation::JumpUnlessFinal { slot, target: 0 }));
                    }
                }
                Some(Guard::If(condition)) => {
                    self.expression(condition);
                    skips.push(self.emit_jump(Operation::JumpIfFalse(0)));
                }
                None => {}
            }
            self.location = statement.location;
            self.statement(statement);
            for skip in skips {
                self.land(skip);
            }
        }
    }

    fn statement(&mut self, statement: &Statement) {
        let location = statement.location;
        match &statement.kind {
            StatementKind::Declare(declaration) => {
                self.declarations(std::slice::from_ref(declaration));
            }
            StatementKind::Assign { variable, value } => {
                self.hint(variable, value);
                let (name, has_path) = self.entity_variable(variable);
                self.expression(value);
                self.location = location;
                self.emit(Operation::EntityPut { name, has_path });
            }
            StatementKind::Clear(variable) => {
                let (name, has_path) = self.entity_variable(variable);
                self.location = location;
                self.emit(Operation::EntityRemove { name, has_path });
            }
            StatementKind::Raise(raise) => self.raise(raise),
            StatementKind::Schedule(schedule) => self.schedule(schedule),
            StatementKind::Log { level, value } => {
                self.expression(value);
                self.emit(Operation::Log(*level));
            }
            StatementKind::Error { level, value } => {
                self.expression(value);
                self.location = location;
                self.emit(Operation::Error(*level));
            }
            StatementKind::Last => self.emit(Operation::Last),
        }
    }

    /// Emits the path of a variable, if it has one. Returns the constant of its name, and true if there is a path.
    fn entity_variable(&mut self, variable: &EntityVariable) -> (u32, bool) {
        let domain = &variable.domain;
        if &*domain.text != "ent" {
            self.error(
                domain.location,
                format!("only `ent:` variables can be changed, not `{}:`", domain.text),
            );
        }
        if let Some(path) = &variable.path {
            self.expression(path);
        }
        (self.text_constant(&variable.name), variable.path.is_some())
    }

    /// Warns about `ent:v := ent:v.put(key, value)`, which writes the whole variable. `ent:v{key} := value` writes a part.
    fn hint(&mut self, variable: &EntityVariable, value: &crate::syntax::ast::Expression) {
        if let ExpressionKind::Call { callee, .. } = &value.kind
            && let ExpressionKind::Dot { object, property } = &callee.kind
            && let ExpressionKind::Domain { domain, name } = &object.kind
            && let ExpressionKind::Identifier(operator) = &property.kind
            && (&**domain, &**operator) == ("ent", "put")
            && *name == variable.name
            && variable.path.is_none()
        {
            let message = format!(
                "use `ent:{name}{{key}} := value` instead of .put(key, value), which writes the whole variable"
            );
            self.warn(value.location, message);
        }
    }

    fn event_type(&mut self, event: &EventType) -> bool {
        match event {
            EventType::Named { domain, name } => {
                let at = self.text_constant(domain);
                self.emit(Operation::Constant(at));
                self.expression(name);
                false
            }
            EventType::Whole(whole) => {
                self.expression(whole);
                true
            }
        }
    }

    fn raise(&mut self, raise: &RaiseStatement) {
        let location = self.location;
        let whole = self.event_type(&raise.event);
        for part in raise.for_rid.iter().chain(&raise.attributes) {
            self.expression(part);
        }
        self.location = location;
        self.emit(Operation::Raise {
            whole,
            has_rid: raise.for_rid.is_some(),
            has_attributes: raise.attributes.is_some(),
        });
    }

    fn schedule(&mut self, schedule: &ScheduleStatement) {
        let location = self.location;
        let whole = self.event_type(&schedule.event);
        self.expression(&schedule.time);
        if let Some(attributes) = &schedule.attributes {
            self.expression(attributes);
        }
        self.location = location;
        self.emit(Operation::Schedule {
            whole,
            repeats: schedule.repeats,
            has_attributes: schedule.attributes.is_some(),
        });
        match &schedule.setting {
            Some(name) => {
                let slot = self.function().bind(&name.text);
                self.emit(Operation::SetLocal(slot));
            }
            None => self.emit(Operation::Pop),
        }
    }
}
