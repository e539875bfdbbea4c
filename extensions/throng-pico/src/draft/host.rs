//! The host of a running ruleset. It answers the machine's calls from the transaction.

use super::{Draft, Stop, attributes_of};
use crate::{
    ask::Ask,
    id::Eci,
    native::{self, NativeArguments, shown, text, value},
    pico::{Change, Logged, ScheduleId, Scheduled, SelectedRule, When},
};
use std::{collections::BTreeSet, sync::Arc};
use throng_krl::{
    Arguments, Call, CallKind, Directive, Error, Event, Host, Interrupt, Level, LogEntry, Module, Raise, Schedule,
    Value,
};

impl Host for Draft<'_> {
    fn ent_get(&mut self, rid: &str, name: &str, path: &[Arc<str>]) -> Result<Value, Interrupt> {
        Ok(match path {
            [] => self.value(rid, name),
            path => self.at_path(rid, name, path),
        })
    }

    fn ent_put(&mut self, rid: &str, name: &str, path: &[Arc<str>], value: Value) -> Result<(), Interrupt> {
        self.put(rid, name, path, value).map_err(|stop| self.interrupt(stop))
    }

    fn ent_remove(&mut self, rid: &str, name: &str, path: &[Arc<str>]) -> Result<(), Interrupt> {
        self.remove(rid, name, path).map_err(|stop| self.interrupt(stop))
    }

    fn module(&mut self, rid: &str) -> Result<Option<Module>, Interrupt> {
        if native::find(rid).is_some() {
            return Ok(Some(Module::Host));
        }
        let Some(url) = self.installed(rid).map(|ruleset| ruleset.url.clone()) else {
            return Ok(None);
        };
        match self.program(&url) {
            Ok(loaded) => Ok(Some(Module::Program(loaded.program.clone()))),
            Err(stop) => Err(self.interrupt(stop)),
        }
    }

    fn call(&mut self, call: &Call<'_>) -> Result<Value, Interrupt> {
        self.called(call).map_err(|stop| self.interrupt(stop))
    }

    fn raise(&mut self, raise: Raise) -> Result<(), Interrupt> {
        let raised = attributes_of(raise.attributes).and_then(|attributes| {
            let event = Event {
                eci: self.via.to_string().into(),
                domain: raise.domain,
                name: raise.name,
                attributes,
                eid: self.eid.clone(),
                time_ms: self.now_ms(),
            };
            Draft::raise(self, event, raise.for_rid.as_deref())
        });
        raised.map_err(|stop| self.interrupt(stop))
    }

    fn clear_schedule(&mut self) {
        self.queue.clear();
    }

    fn schedule(&mut self, schedule: Schedule) -> Result<Value, Interrupt> {
        self.scheduled(schedule).map_err(|stop| self.interrupt(stop))
    }

    fn directive(&mut self, directive: Directive) -> Result<(), Interrupt> {
        let Directive {
            name,
            options,
            rid,
            rule,
        } = directive;
        let meta = Value::map([
            ("rid", Value::from(rid)),
            ("rule_name", rule.map(Value::from).unwrap_or_default()),
            ("txnId", self.eid.clone().into()),
        ]);
        let entries = [
            ("type", Value::from("directive")),
            ("name", name),
            ("options", options.into_data()),
            ("meta", meta),
        ];
        self.direct(Value::map(entries)).map_err(|stop| self.interrupt(stop))
    }

    fn rule_selected(&mut self, rid: &Arc<str>, rule: &Arc<str>) {
        if self.rules.len() < super::LOGGED_MAX {
            self.rules.push(SelectedRule {
                rid: rid.clone(),
                rule: rule.clone(),
                fired: 0,
                not_fired: 0,
            });
        } else {
            self.rules_left_out = true;
        }
    }

    fn rule_fired(&mut self, fired: bool) {
        if self.rules_left_out {
            return;
        }
        if let Some(rule) = self.rules.last_mut() {
            let count = if fired { &mut rule.fired } else { &mut rule.not_fired };
            *count = count.saturating_add(1);
        }
    }

    fn log(&mut self, entry: LogEntry) {
        let level = match entry.level {
            Level::Debug => "debug",
            Level::Klog => "klog",
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
        };
        self.note(Logged {
            level: level.into(),
            rid: entry.rid,
            rule: entry.rule,
            message: entry.message,
            value: entry.value.into_data(),
        });
    }

    fn is_logged(&self, level: Level) -> bool {
        level > Level::Debug && self.log.len() < super::LOGGED_MAX
    }
}

/// Returns a function that reads the arguments of a call, for a native ruleset.
fn given(arguments: &Arguments) -> impl Fn(usize, &str) -> Value {
    |place, name| arguments.get(place, name)
}

impl Draft<'_> {
    /// Returns the value at a path in a variable, without a copy of the variable.
    fn at_path(&mut self, rid: &str, name: &str, path: &[Arc<str>]) -> Value {
        if self.variables.is_empty() {
            let variable = self.pico.variables.get(rid, name);
            return variable.map(|variable| variable.at_path(path)).unwrap_or_default();
        }
        self.value(rid, name).at_path(path)
    }

    fn called(&mut self, call: &Call<'_>) -> Result<Value, Stop> {
        match call.domain {
            "ctx" => self.ctx(call),
            "event" => self.event_module(call),
            "http" => self.http(call),
            "schedule" => self.schedule_module(call),
            "meta" => self.meta(call),
            rid => match native::find(rid) {
                Some(native) => {
                    let get = given(call.arguments);
                    let answered = (native.answer)(self, call.name, &NativeArguments(&get));
                    answered.unwrap_or_else(|| Err(unknown(call)))
                }
                None => Err(unknown(call)),
            },
        }
    }

    fn ctx(&mut self, call: &Call<'_>) -> Result<Value, Stop> {
        let argument = |place, name| call.arguments.get(place, name);
        let text_of = |place, name| text(&call.arguments.get(place, name));
        let shape = |from| {
            native::shape(
                &argument(from, "tags"),
                &argument(from + 1, "eventPolicy"),
                &argument(from + 2, "queryPolicy"),
            )
        };
        match call.name {
            "picoId" => Ok(self.own_text()),
            "parent" => Ok(self.body().parent.map(eci_value).unwrap_or_default()),
            "children" => {
                let children = native::children(self)?;
                Ok(children
                    .into_iter()
                    .map(|(_, eci)| eci_value(eci))
                    .collect::<Vec<_>>()
                    .into())
            }
            "channels" => Ok(native::channels(self).into()),
            "rulesets" => self.shown_rulesets(),
            "rid" | "rid_url" | "rid_config" | "rid_version" | "rid_name" | "rid_description" | "rid_author" => {
                self.of_ruleset(call.rid, call.name)
            }
            "newPico" => {
                let rulesets = self.all_installing(&argument(0, "rulesets"))?;
                self.new_pico(rulesets, Value::Null).map(|(eci, _)| eci_value(eci))
            }
            "delPico" => self.del_pico(&text_of(0, "eci")).map(|()| Value::Null),
            "newChannel" => {
                let channel = self.new_channel(shape(0)?)?;
                Ok(value(channel.shown(self.id())))
            }
            "putChannel" => self.put_channel(&text_of(0, "eci"), shape(1)?).map(|()| Value::Null),
            "upsertChannel" => {
                let shape = shape(0)?;
                let tags: Vec<&str> = shape.tags.iter().map(|tag| &**tag).collect();
                match self.tagged(&tags) {
                    Some(eci) => self.put_channel(&eci.to_string(), shape).map(|()| Value::Null),
                    None => self.new_channel(shape).map(|_| Value::Null),
                }
            }
            "delChannel" => self.del_channel(&text_of(0, "eci")).map(|()| Value::Null),
            "install" => {
                let config = argument(1, "config");
                self.install(&text_of(0, "url"), config).map(Value::from)
            }
            "uninstall" => self.uninstall(&text_of(0, "rid")).map(|()| Value::Null),
            "flush" => {
                let url = text_of(0, "url").into();
                answered(self.ask(Ask::Flush { url })?)
            }
            "raiseEvent" => {
                let for_rid = argument(3, "forRid");
                let event = Event {
                    eci: self.via.to_string().into(),
                    domain: text_of(0, "domain").into(),
                    name: text_of(1, "name").into(),
                    attributes: attributes_of(argument(2, "attrs"))?,
                    eid: self.eid.clone(),
                    time_ms: self.now_ms(),
                };
                self.raise(event, for_rid.as_str()).map(|()| Value::Null)
            }
            "event" => {
                let host = argument(4, "host");
                self.send_to(
                    &text_of(0, "eci"),
                    (&text_of(1, "domain"), &text_of(2, "name")),
                    argument(3, "attrs"),
                    &host,
                )
            }
            "eventQuery" => {
                let then = (
                    text_of(4, "rid").into(),
                    text_of(5, "queryName").into(),
                    attributes_of(argument(6, "args"))?,
                );
                let ask = Ask::Event {
                    from: self.id(),
                    eci: eci_of(&text_of(0, "eci"))?,
                    domain: text_of(1, "domain").into(),
                    name: text_of(2, "name").into(),
                    attributes: attributes_of(argument(3, "attrs"))?,
                    then: Some(then),
                    once: format!("{} {}", self.eid, self.used()).into(),
                };
                answered(self.ask(ask)?)
            }
            "query" => {
                let ask = Ask::Query {
                    from: Some(self.id()),
                    eci: eci_of(&text_of(0, "eci"))?,
                    rid: text_of(1, "rid").into(),
                    name: text_of(2, "name").into(),
                    arguments: attributes_of(argument(3, "args"))?,
                };
                answered(self.ask(ask)?)
            }
            "logs" => {
                let pico = self.id();
                answered(self.ask(Ask::Logs { pico })?)
            }
            _ => Err(unknown(call)),
        }
    }

    /// Answers `event:send`. The machine itself answers the properties of `event`.
    fn event_module(&mut self, call: &Call<'_>) -> Result<Value, Stop> {
        if call.name != "send" {
            return Err(unknown(call));
        }
        let options = call.arguments.get(0, "options");
        let option = |name: &str| options.child(name).cloned().unwrap_or_default();
        let sub = option("sub");
        let of_sub = |name: &str| sub.child(name).cloned().unwrap_or_default();
        let (eci, host) = match option("eci") {
            eci if !eci.is_true() && sub.is_true() => (of_sub("Tx"), of_sub("Tx_host")),
            eci => (eci, call.arguments.get(1, "host")),
        };
        let Some(eci) = eci.as_str() else {
            return Err(Error::type_error(format!("eci was {} instead of a string", eci.to_text())).into());
        };
        let name = match option("name") {
            name if name.is_true() => name,
            _ => option("type"),
        };
        let event = (text(&option("domain")), text(&name));
        if !host.is_true() && self.is_unreachable(call.rid, eci) {
            return Ok(Value::Null);
        }
        self.send_to(eci, (&event.0, &event.1), option("attrs"), &host)
    }

    /// Sends an event to a pico of this engine or another one.
    fn send_to(
        &mut self,
        eci: &str,
        (domain, name): (&str, &str),
        attributes: Value,
        host: &Value,
    ) -> Result<Value, Stop> {
        let eid = self.fresh.secret().to_string();
        match host.is_true() {
            true => {
                let url = format!("{}/c/{eci}/event/{domain}/{name}", host.to_text());
                self.send_abroad(url, attributes)?;
            }
            false => self.send(eci, domain, name, attributes)?,
        }
        Ok(eid.into())
    }

    fn http(&mut self, call: &Call<'_>) -> Result<Value, Stop> {
        const PARAMETERS: [&str; 10] = [
            "url",
            "qs",
            "headers",
            "body",
            "auth",
            "json",
            "form",
            "parseJSON",
            "autoraise",
            "dontFollowRedirect",
        ];
        let is_known = matches!(call.name, "get" | "head" | "post" | "put" | "patch" | "delete");
        if !is_known {
            return Err(unknown(call));
        }
        if call.kind == CallKind::Function && !matches!(call.name, "get" | "head") {
            return Err(Error::value_error(format!(
                "http:{} is an action: it can only be done in a rule",
                call.name
            ))
            .into());
        }
        let arguments = call.arguments.to_map(&PARAMETERS).into_data();
        let autoraise = arguments.child("autoraise").cloned().unwrap_or_default();
        let ask = Ask::Http {
            method: call.name.to_uppercase().into(),
            arguments,
        };
        let response = answered(self.ask(ask)?)?;
        if autoraise.is_true() && call.kind == CallKind::Action {
            let attributes = native::with(&response, "label", autoraise);
            self.raise_as("http", call.name, attributes)?;
        }
        Ok(response)
    }

    fn scheduled(&mut self, schedule: Schedule) -> Result<Value, Stop> {
        let when = match schedule.when {
            throng_krl::When::At(at) => When::At(at),
            throng_krl::When::Repeat(cron) => {
                crate::cron::check(&cron).map_err(Error::value_error)?;
                When::Repeat(cron)
            }
        };
        let scheduled = Scheduled {
            id: ScheduleId(self.fresh.secret().to_string().into()),
            rid: schedule.rid,
            via: eci_of(&schedule.eci)?.secret,
            domain: schedule.domain,
            name: schedule.name,
            attributes: attributes_of(schedule.attributes)?,
            when,
        };
        let shown = scheduled.shown();
        self.add_schedule(scheduled)?;
        Ok(shown)
    }

    fn schedule_module(&mut self, call: &Call<'_>) -> Result<Value, Stop> {
        let find = |draft: &Self, id: &str| {
            let mut own = draft
                .body()
                .schedules
                .iter()
                .filter(|scheduled| &*scheduled.rid == call.rid);
            own.find(|scheduled| &*scheduled.id.0 == id).cloned()
        };
        match call.name {
            "list" => {
                let own = self
                    .body()
                    .schedules
                    .iter()
                    .filter(|scheduled| &*scheduled.rid == call.rid);
                Ok(own.map(Scheduled::shown).collect::<Vec<_>>().into())
            }
            "get" => {
                let id = text(&call.arguments.get(0, "id"));
                Ok(find(self, &id).map(|scheduled| scheduled.shown()).unwrap_or_default())
            }
            "remove" => {
                let id = match call.arguments.get(0, "id") {
                    Value::Map(map) => map.get("id").map(text).unwrap_or_default(),
                    id => text(&id),
                };
                match find(self, &id) {
                    Some(scheduled) => self.record(Change::NoSchedule(scheduled.id)).map(|()| true.into()),
                    None => Ok(false.into()),
                }
            }
            "clear" => {
                let own = self
                    .body()
                    .schedules
                    .iter()
                    .filter(|scheduled| &*scheduled.rid == call.rid);
                let ids: Vec<ScheduleId> = own.map(|scheduled| scheduled.id.clone()).collect();
                for id in ids {
                    self.record(Change::NoSchedule(id))?;
                }
                Ok(Value::Null)
            }
            _ => Err(unknown(call)),
        }
    }

    fn meta(&mut self, call: &Call<'_>) -> Result<Value, Stop> {
        match call.name {
            "eci" => Ok(eci_value(self.via)),
            "rid" => Ok(call.rid.into()),
            "host" => Ok(crate::rulesets::host(self.body().realm).into()),
            "picoId" => Ok(self.own_text()),
            "txnId" => Ok(self.eid.clone().into()),
            "ruleName" | "rule_name" => Ok(call.rule.map(Value::from).unwrap_or_default()),
            "rulesetName" => self.of_ruleset(call.rid, "rid_name"),
            "rulesetAuthor" => self.of_ruleset(call.rid, "rid_author"),
            "rulesetURI" | "rid_url" => self.of_ruleset(call.rid, "rid_url"),
            "rulesetConfig" => self.of_ruleset(call.rid, "rid_config"),
            "inEvent" => Ok(self.event.is_some().into()),
            "inQuery" => Ok(self.is_query.into()),
            _ => Err(unknown(call)),
        }
    }

    fn own_text(&self) -> Value {
        self.tagged(&["system", "self"]).map(eci_value).unwrap_or_default()
    }

    fn of_ruleset(&mut self, rid: &str, what: &str) -> Result<Value, Stop> {
        if what == "rid" {
            return Ok(rid.into());
        }
        let Some(ruleset) = self.installed(rid) else {
            return Ok(Value::Null);
        };
        if what == "rid_config" {
            return Ok(match &ruleset.config {
                Value::Null => Value::map::<&str>([]),
                config => config.clone(),
            });
        }
        let url = ruleset.url.clone();
        if what == "rid_url" {
            return Ok(url.into());
        }
        let loaded = self.program(&url)?;
        let meta = loaded.program.meta();
        let text = match what {
            "rid_version" => &meta.version,
            "rid_name" => &meta.name,
            "rid_description" => &meta.description,
            _ => &meta.author,
        };
        Ok(text.clone().map(Value::from).unwrap_or_default())
    }

    /// Returns the rulesets in the form of `ctx:rulesets`.
    pub(crate) fn shown_rulesets(&mut self) -> Result<Value, Stop> {
        let installed = self.body().rulesets.clone();
        let mut list: Vec<Value> = native::ALL.iter().map(native::Native::shown).collect();
        for ruleset in installed {
            let meta = match self.program(&ruleset.url) {
                Ok(loaded) => shown(&loaded.shown()),
                Err(Stop::Failed(_)) => Value::Null,
                Err(ask) => return Err(ask),
            };
            let config = match ruleset.config {
                Value::Null => Value::map::<&str>([]),
                config => config,
            };
            list.push(Value::map([
                ("rid", Value::from(ruleset.rid)),
                ("url", ruleset.url.into()),
                ("config", config),
                ("meta", meta),
            ]));
        }
        Ok(list.into())
    }

    /// Reads `[{url, config}, …]` and loads each ruleset, ready to be installed.
    fn all_installing(&mut self, rulesets: &Value) -> Result<Vec<crate::pico::Installing>, Stop> {
        let list = match rulesets {
            Value::Null => &[],
            Value::Array(list) => &list[..],
            _ => return Err(Error::type_error("ctx:newPico expects an array of {url, config}").into()),
        };
        let mut installing = Vec::new();
        let mut has = BTreeSet::new();
        for ruleset in list {
            let url = ruleset.child("url").map(text).unwrap_or_default();
            let config = ruleset.child("config").cloned().unwrap_or_default();
            let next = self.installing(&url, config, &has)?;
            has.insert(next.rid.clone());
            installing.push(next);
        }
        Ok(installing)
    }
}

fn eci_value(eci: Eci) -> Value {
    eci.to_string().into()
}

fn eci_of(text: &str) -> Result<Eci, Stop> {
    text.parse()
        .map_err(|_| Error::value_error(format!("ECI not found {text}")).into())
}

fn answered(answered: crate::ask::Answered) -> Result<Value, Stop> {
    answered.map_err(|why| Error::told(&why).into())
}

fn unknown(call: &Call<'_>) -> Stop {
    let what = match call.kind {
        CallKind::Property => "property",
        CallKind::Function => "function",
        CallKind::Action => "action",
    };
    Error::value_error(format!("there is no {what} {}:{}", call.domain, call.name)).into()
}
