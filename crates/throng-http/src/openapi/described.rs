//! Descriptions of an app's own routes for the OpenAPI document, by the types that their handlers take and return.

use super::paths;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};
use throng::model::Rejection;

type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// Descriptions of an app's own routes, for `/openapi.json` and `/docs`; give them to
/// [`Gateway::describe`](crate::Gateway::describe).
///
/// The routes themselves are mounted with [`Gateway::routes`](crate::Gateway::routes). Paths are axum's, `{name}` for a part; each such
/// part is automatically described as a string.
///
/// ```
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
/// use throng_http::{Described, Route};
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Page { after: Option<String>, limit: Option<u32> }
/// #[derive(Deserialize, JsonSchema)]
/// struct Opening { section: String, capacity: u32 }
/// #[derive(Serialize, JsonSchema)]
/// struct Section { section: String, seats: u32 }
///
/// let described = Described::new("sections", "The sections of a term")
///     .route(Route::get("/sections", "Lists the sections").query::<Page>().replies::<Vec<Section>>(200, "A page of them"))
///     .route(Route::post("/sections", "Opens a section").once().body::<Opening>().replies::<Section>(201, "It is open"))
///     .route(Route::get("/sections/{id}", "How full it is").part("id", "Which section").replies::<Section>(200, "As of now"));
/// # drop(described);
/// ```
#[derive(Clone, Debug)]
pub struct Described {
    tag: String,
    about: String,
    routes: Vec<Route>,
}

/// A method on a path.
#[derive(Clone, Debug)]
pub struct Route {
    method: &'static str,
    path: String,
    summary: String,
    description: Option<String>,
    /// Names and descriptions of the path's parts.
    parts: Vec<(String, String)>,
    query: Option<SchemaOf>,
    body: Option<SchemaOf>,
    once: bool,
    replies: Vec<(u16, String, Option<SchemaOf>)>,
    refuses: Option<SchemaOf>,
    /// A stream of events: its description, and the type of each event's data.
    streams: Option<(String, SchemaOf)>,
}

impl Described {
    /// Returns a group of descriptions, empty so far, which are shown under this name.
    #[must_use]
    pub fn new(name: impl Into<String>, about: impl Into<String>) -> Self {
        Self {
            tag: name.into(),
            about: about.into(),
            routes: Vec::new(),
        }
    }

    /// Adds one to those that are described.
    #[must_use]
    pub fn route(mut self, route: Route) -> Self {
        self.routes.push(route);
        self
    }

    /// Returns the method and path of each description: for a test that they are mounted.
    pub fn paths(&self) -> impl Iterator<Item = (&str, &str)> {
        self.routes.iter().map(|route| (route.method, route.path.as_str()))
    }

    /// The tag's entry.
    pub(super) fn tag(&self) -> Value {
        json!({ "name": self.tag, "description": self.about })
    }

    /// Adds the paths' entries to those in the document.
    pub(super) fn write(&self, paths: &mut Map<String, Value>, generator: &mut SchemaGenerator) {
        for route in &self.routes {
            let operation = route.operation(&self.tag, generator);
            let methods = paths.entry(&route.path).or_insert_with(|| json!({}));
            methods[route.method.to_ascii_lowercase()] = operation;
        }
    }
}

impl Route {
    fn new(method: &'static str, path: impl Into<String>, summary: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            summary: summary.into(),
            description: None,
            parts: Vec::new(),
            query: None,
            body: None,
            once: false,
            replies: Vec::new(),
            refuses: None,
            streams: None,
        }
    }

    /// Describes `GET` on a path, with a short summary.
    #[must_use]
    pub fn get(path: impl Into<String>, summary: impl Into<String>) -> Self {
        Self::new("GET", path, summary)
    }

    /// `POST` on a path, as [`get`](Self::get).
    #[must_use]
    pub fn post(path: impl Into<String>, summary: impl Into<String>) -> Self {
        Self::new("POST", path, summary)
    }

    /// `PUT` on a path, as [`get`](Self::get).
    #[must_use]
    pub fn put(path: impl Into<String>, summary: impl Into<String>) -> Self {
        Self::new("PUT", path, summary)
    }

    /// `PATCH` on a path, as [`get`](Self::get).
    #[must_use]
    pub fn patch(path: impl Into<String>, summary: impl Into<String>) -> Self {
        Self::new("PATCH", path, summary)
    }

    /// `DELETE` on a path, as [`get`](Self::get).
    #[must_use]
    pub fn delete(path: impl Into<String>, summary: impl Into<String>) -> Self {
        Self::new("DELETE", path, summary)
    }

    /// Adds a description in Markdown to the summary.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// Describes a part of the path.
    #[must_use]
    pub fn part(mut self, name: impl Into<String>, description: impl Into<String>) -> Self {
        self.parts.push((name.into(), description.into()));
        self
    }

    /// The type of its query string.
    #[must_use]
    pub fn query<T: JsonSchema>(mut self) -> Self {
        self.query = Some(SchemaGenerator::subschema_for::<T>);
        self
    }

    /// The type of its JSON body.
    #[must_use]
    pub fn body<T: JsonSchema>(mut self) -> Self {
        self.body = Some(SchemaGenerator::subschema_for::<T>);
        self
    }

    /// Says that the route honours the header `Idempotency-Key`.
    #[must_use]
    pub fn once(mut self) -> Self {
        self.once = true;
        self
    }

    /// The type of its JSON answer under a status.
    #[must_use]
    pub fn replies<T: JsonSchema>(mut self, status: u16, description: impl Into<String>) -> Self {
        let schema: SchemaOf = SchemaGenerator::subschema_for::<T>;
        self.replies.push((status, description.into(), Some(schema)));
        self
    }

    /// Adds an answer without a body, or with one that is not JSON.
    #[must_use]
    pub fn answers(mut self, status: u16, description: impl Into<String>) -> Self {
        self.replies.push((status, description.into(), None));
        self
    }

    /// Adds a live stream (`text/event-stream`) whose events each have such a value as JSON data.
    #[must_use]
    pub fn streams<T: JsonSchema>(mut self, description: impl Into<String>) -> Self {
        self.streams = Some((description.into(), SchemaGenerator::subschema_for::<T>));
        self
    }

    /// Adds the rejections of the entity behind it.
    #[must_use]
    pub fn refuses<R: Rejection + JsonSchema>(mut self) -> Self {
        self.refuses = Some(SchemaGenerator::subschema_for::<R>);
        self
    }

    /// Returns an id that no other operation of the document has: method and path in words.
    fn id(&self) -> String {
        let words = self.path.split(|letter: char| !letter.is_ascii_alphanumeric());
        let words = words.filter(|word| !word.is_empty()).map(str::to_ascii_lowercase);
        let mut id = format!("app-{}", self.method.to_ascii_lowercase());
        for word in words {
            id.push('-');
            id.push_str(&word);
        }
        id
    }

    fn parameters(&self, generator: &mut SchemaGenerator) -> Vec<Value> {
        let names = self
            .path
            .split('/')
            .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let mut parameters: Vec<Value> = names
            .map(|name| {
                let name = name.trim_start_matches('*');
                let about = self.parts.iter().find(|(part, _)| part == name).map_or("", |(_, about)| about);
                json!({ "name": name, "in": "path", "required": true, "description": about, "schema": { "type": "string" } })
            })
            .collect();
        if self.once {
            parameters.push(paths::key());
        }
        if let Some(query) = self.query {
            parameters.push(json!({ "name": "fields", "in": "query", "style": "form", "explode": true, "schema": query(generator) }));
        }
        parameters
    }

    fn operation(&self, tag: &str, generator: &mut SchemaGenerator) -> Value {
        let mut responses = paths::problems(if self.body.is_some() {
            paths::WRITE_PROBLEMS
        } else {
            paths::READ_PROBLEMS
        });
        for (status, about, schema) in &self.replies {
            let mut response = match schema {
                Some(schema) => paths::content(about, &schema(generator)),
                None => json!({ "description": about }),
            };
            // The gateway answers with this status, too.
            if responses.contains_key(&status.to_string()) {
                response["content"]["application/problem+json"] = paths::problem_content();
            }
            responses.insert(status.to_string(), response);
        }
        if let Some((about, schema)) = &self.streams {
            let data =
                json!({ "type": "string", "contentMediaType": "application/json", "contentSchema": schema(generator) });
            let response = responses
                .entry("200")
                .or_insert_with(|| json!({ "description": about }));
            response["content"]["text/event-stream"] = json!({ "schema": data });
        }
        if let Some(refuses) = self.refuses {
            responses.insert("409".into(), paths::rejection("entity behind it", &refuses(generator)));
        }
        let mut operation = json!({
            "tags": [tag], "operationId": self.id(), "summary": self.summary,
            "parameters": self.parameters(generator), "responses": responses,
        });
        if let Some(description) = &self.description {
            operation["description"] = json!(description);
        }
        if let Some(body) = self.body {
            operation["requestBody"] =
                json!({ "required": true, "content": { "application/json": { "schema": body(generator) } } });
        }
        operation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_named_by_its_method_and_path() {
        assert_eq!(Route::get("/", "").id(), "app-get");
        assert_eq!(
            Route::put("/sections/{id}/roster/{*Rest}", "").id(),
            "app-put-sections-id-roster-rest"
        );
    }

    #[test]
    fn live_stream_is_described_beside_a_page() {
        let mut generator = SchemaGenerator::default();
        let route = Route::get("/news", "")
            .replies::<Vec<u64>>(200, "A page")
            .streams::<u64>("As they come");
        let operation = route.operation("news", &mut generator);
        let content = &operation["responses"]["200"]["content"];
        assert_eq!(content["application/json"]["schema"]["type"], "array");
        assert_eq!(
            content["text/event-stream"]["schema"]["contentSchema"]["type"],
            "integer"
        );
    }

    #[test]
    fn own_answer_of_a_status_leaves_the_gateways_problem() {
        let mut generator = SchemaGenerator::default();
        let route = Route::post("/a", "")
            .body::<String>()
            .replies::<String>(400, "Why")
            .replies::<u8>(418, "");
        let operation = route.operation("", &mut generator);
        let types = |status: &str| {
            operation["responses"][status]["content"]
                .as_object()
                .unwrap()
                .keys()
                .cloned()
                .collect::<Vec<_>>()
        };
        assert_eq!(types("400"), ["application/json", "application/problem+json"]);
        assert_eq!(types("418"), ["application/json"]);
    }

    #[test]
    fn every_part_of_the_path_is_a_parameter() {
        let mut generator = SchemaGenerator::default();
        let route = Route::get("/a/{id}/{*rest}", "").part("id", "Which");
        let parameters = route.parameters(&mut generator);
        let named = |at: usize| (parameters[at]["name"].as_str(), parameters[at]["description"].as_str());
        assert_eq!(
            (named(0), named(1)),
            ((Some("id"), Some("Which")), (Some("rest"), Some("")))
        );
    }
}
