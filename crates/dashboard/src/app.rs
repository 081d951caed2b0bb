//! Addresses, and who may ask for them.

use crate::act;
use crate::audit::{Audit, Line};
use crate::history::History;
use crate::listen::is_own_host;
use crate::pages;
use crate::session::{COOKIE, LIFE_S, Sessions, Who};
use crate::source::{Answers, Source};
use crate::statics;
use crate::subject::{Documents, SUBJECTS, Subject, find};
use crate::token::{Role, Tokens};
use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Form, Path, Query, Request, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE as COOKIES, HOST, LOCATION,
    ORIGIN, REFERRER_POLICY, SET_COOKIE, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use maud::Markup;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path;
use std::sync::Arc;
use world::World;

/// Of the body of a request.
pub const BODY_MAX_BYTES: usize = 16 << 10;
/// What a page may load and do: nothing from elsewhere, nothing within the page's own text.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

pub type Fields = BTreeMap<String, String>;

/// One console.
pub struct Console {
    pub world: World,
    pub source: Arc<dyn Source>,
    pub answers: Answers,
    pub history: Arc<History>,
    pub audit: Audit,
    sessions: Sessions,
}

impl Console {
    /// `folder`: where it keeps tokens and audit.
    pub fn new(
        world: &World,
        source: Arc<dyn Source>,
        history: Arc<History>,
        folder: &path::Path,
    ) -> Console {
        Console {
            world: world.clone(),
            answers: Answers::new(world, source.clone()),
            source,
            history,
            audit: Audit::of(folder),
            sessions: Sessions::new(Tokens::of(folder)),
        }
    }

    pub fn now(&self) -> i64 {
        self.world.wall().sec
    }

    pub fn documents(&self, s: &Subject) -> Documents {
        let all = s.topics.iter().map(|t| (t.name().to_string(), (*self.answers.of(*t)).clone()));
        let mut all: Map<String, Value> = all.collect();
        all.insert("time".into(), json!(self.now()));
        Documents(all)
    }

    /// Who asks; `None`: somebody who has to say first.
    fn who(&self, headers: &HeaderMap) -> Result<Option<Who>, String> {
        if let Some(given) = headers.get(AUTHORIZATION) {
            let secret = given.to_str().ok().and_then(|v| v.strip_prefix("Bearer "));
            return secret.map_or(Ok(None), |s| self.sessions.of_token(s.trim()));
        }
        cookie(headers).map_or(Ok(None), |c| self.sessions.of_cookie(&c, self.now()))
    }

    fn page(&self, s: &Subject, who: &Who) -> Response {
        let d = self.documents(s);
        let above = s.above.map_or_else(Markup::default, |above| above(self));
        html(StatusCode::OK, pages::frame::page(s, who, &above, &(s.render)(&d, self)))
    }

    fn begin(&self, secret: &str, next: &str) -> Response {
        let keys = (self.world.random_key(), self.world.random_key());
        let now = self.now();
        match self.sessions.begin(secret, (&keys.0, &keys.1), now) {
            Err(e) => self.login(StatusCode::INTERNAL_SERVER_ERROR, next, Some(&e)),
            Ok(None) => {
                let l = Line { name: "-", role: "-", action: "login", object: "-", result: "no such token" };
                if let Err(e) = self.audit.write(now, &l) {
                    tracing::warn!("{e}");
                }
                self.login(StatusCode::FORBIDDEN, next, Some("There is no such token."))
            }
            Ok(Some((cookie, who))) => {
                if let Err(e) = self.audit.write(now, &Line::of(&who, "login", "-", "done")) {
                    return self.login(StatusCode::INTERNAL_SERVER_ERROR, next, Some(&e));
                }
                let cookie =
                    format!("{COOKIE}={cookie}; HttpOnly; SameSite=Strict; Path=/; Max-Age={LIFE_S}");
                let mut r = see_other(&format!("/{}", find(next).map_or("overview", |s| s.name)));
                r.headers_mut().insert(SET_COOKIE, value(&cookie));
                r
            }
        }
    }

    fn login(&self, status: StatusCode, next: &str, wrong: Option<&str>) -> Response {
        let has_tokens = self.sessions.has_tokens();
        html(status, pages::frame::login(next, wrong, &has_tokens))
    }

    /// For whoever is not logged in.
    fn ask_who(&self, headers: &HeaderMap, next: &str, wrong: Option<&str>) -> Response {
        let to = format!("/login?next={next}");
        if headers.contains_key("hx-request") {
            let mut r = StatusCode::UNAUTHORIZED.into_response();
            r.headers_mut().insert("hx-redirect", value(&to));
            return r;
        }
        match wrong {
            Some(w) => self.login(StatusCode::INTERNAL_SERVER_ERROR, next, Some(w)),
            None => see_other(&to),
        }
    }
}

fn cookie(headers: &HeaderMap) -> Option<String> {
    let all = headers.get_all(COOKIES).iter().filter_map(|v| v.to_str().ok()).flat_map(|v| v.split(';'));
    all.filter_map(|c| c.trim().split_once('=')).find(|(n, _)| *n == COOKIE).map(|(_, v)| v.to_string())
}

fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

pub fn html(status: StatusCode, page: Markup) -> Response {
    (status, [(CONTENT_TYPE, "text/html; charset=utf-8")], page.into_string()).into_response()
}

fn as_json(status: StatusCode, v: &Value) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], format!("{v:#}\n")).into_response()
}

fn refused(status: StatusCode, why: &str) -> Response {
    as_json(status, &json!({"error": why}))
}

fn see_other(to: &str) -> Response {
    (StatusCode::SEE_OTHER, [(LOCATION, value(to))]).into_response()
}

fn unknown() -> Response {
    let why = "There is no such page: the navigation of /overview has them, /api their JSON addresses.\n";
    (StatusCode::NOT_FOUND, [(CONTENT_TYPE, "text/plain; charset=utf-8")], why).into_response()
}

/// Before everything: whether the browser meant this console, and what no answer may be without.
async fn guard(request: Request, next: Next) -> Response {
    let host = request.headers().get(HOST).and_then(|h| h.to_str().ok()).unwrap_or_default().to_string();
    let changes = !matches!(*request.method(), Method::GET | Method::HEAD);
    let origin = request.headers().get(ORIGIN).map(|o| o.to_str().unwrap_or("?").to_string());
    let is_foreign = changes && origin.is_some_and(|o| o != format!("http://{host}"));
    let mut r = if !is_own_host(&host) {
        let why = "This console is asked for as localhost or a loopback address only.\n";
        (StatusCode::MISDIRECTED_REQUEST, why).into_response()
    } else if is_foreign {
        (StatusCode::FORBIDDEN, "Another page may not change anything here.\n").into_response()
    } else {
        next.run(request).await
    };
    let all = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        // The origin of a form must be told to this console.
        (REFERRER_POLICY, "same-origin"),
    ];
    for (name, text) in all {
        r.headers_mut().insert(name, HeaderValue::from_static(text));
    }
    r.headers_mut().entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    r
}

/// Runs a handler on a thread that may block.
async fn blocking(app: Arc<Console>, f: impl FnOnce(&Console) -> Response + Send + 'static) -> Response {
    let world = app.world.clone();
    world.blocking(move || f(&app)).await
}

type Of = State<Arc<Console>>;

async fn page(State(app): Of, Path(name): Path<String>, headers: HeaderMap) -> Response {
    blocking(app, move |app| {
        let Some(s) = find(&name) else { return unknown() };
        match app.who(&headers) {
            Ok(Some(who)) => app.page(s, &who),
            Ok(None) => app.ask_who(&headers, s.name, None),
            Err(e) => app.ask_who(&headers, s.name, Some(&e)),
        }
    })
    .await
}

/// Why something is not told or done.
struct Refusal {
    status: StatusCode,
    why: String,
}

impl Refusal {
    fn new(status: StatusCode, why: impl Into<String>) -> Refusal {
        Refusal { status, why: why.into() }
    }

    /// For a program.
    fn answer(&self) -> Response {
        let mut r = refused(self.status, &self.why);
        if self.status == StatusCode::UNAUTHORIZED {
            r.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        r
    }
}

/// Who may see what JSON has.
fn viewer(app: &Console, headers: &HeaderMap) -> Result<Who, Refusal> {
    let none = || Refusal::new(StatusCode::UNAUTHORIZED, "send a token: Authorization: Bearer TOKEN");
    let who = app.who(headers).map_err(|e| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, e))?;
    who.ok_or_else(none)
}

async fn api(
    State(app): Of,
    Path(name): Path<String>,
    Query(query): Query<Fields>,
    headers: HeaderMap,
) -> Response {
    blocking(app, move |app| {
        if let Err(r) = viewer(app, &headers) {
            return r.answer();
        }
        let v = match name.as_str() {
            "history" => match app.history.json(query.get("target").map_or("", String::as_str)) {
                Some(v) => v,
                None => return refused(StatusCode::NOT_FOUND, "there is no such target"),
            },
            "audit" => json!({"lines": app.audit.newest()}),
            name => match find(name) {
                Some(s) => Value::Object(app.documents(s).0),
                None => return refused(StatusCode::NOT_FOUND, "there is no such document: /api has them"),
            },
        };
        as_json(StatusCode::OK, &v)
    })
    .await
}

async fn api_list(State(app): Of, headers: HeaderMap) -> Response {
    blocking(app, move |app| {
        if let Err(r) = viewer(app, &headers) {
            return r.answer();
        }
        let page = |s: &Subject| json!({"address": format!("/api/{}", s.name), "about": s.about});
        let mut all: Vec<Value> = SUBJECTS.iter().map(page).collect();
        all.push(json!({"address": "/api/history?target=LABEL", "about": "rates and times of the last samples; without a target of all together"}));
        all.push(json!({"address": "/api/audit", "about": "who did what by this console, newest first"}));
        let action = |a: &act::Action| {
            let fields: Vec<_> = a.fields.iter().map(|f| f.name).collect();
            json!({"address": format!("/api/act/{}", a.name), "method": "POST", "about": a.about,
                   "fields": fields})
        };
        all.extend(act::ACTIONS.iter().map(action));
        as_json(StatusCode::OK, &json!({"version": admin::VERSION, "documents": all}))
    })
    .await
}

async fn login_page(State(app): Of, Query(query): Query<Fields>) -> Response {
    blocking(app, move |app| {
        let next = query.get("next").map_or("overview", String::as_str);
        app.login(StatusCode::OK, next, None)
    })
    .await
}

async fn login(State(app): Of, Form(form): Form<Fields>) -> Response {
    blocking(app, move |app| {
        let field = |name: &str| form.get(name).map_or("", String::as_str);
        app.begin(field("token"), field("next"))
    })
    .await
}

async fn logout(State(app): Of, headers: HeaderMap, Form(form): Form<Fields>) -> Response {
    blocking(app, move |app| {
        // A page of others may not even do that.
        if let (Some(c), Ok(Some(who))) = (cookie(&headers), app.who(&headers))
            && who.sent(form.get("csrf").map(String::as_str))
        {
            app.sessions.end(&c);
        }
        see_other("/login")
    })
    .await
}

/// What it would mean to do something, and the form that does it.
async fn confirm(
    State(app): Of,
    Path(name): Path<String>,
    Query(query): Query<Fields>,
    headers: HeaderMap,
) -> Response {
    blocking(app, move |app| {
        let Some(action) = act::find(&name) else { return unknown() };
        match app.who(&headers) {
            Ok(Some(who)) if who.role < Role::Operator => {
                html(StatusCode::FORBIDDEN, pages::act::may_not(action, &who))
            }
            Ok(Some(who)) => html(StatusCode::OK, pages::act::form(action, &who, &query, None)),
            Ok(None) => app.ask_who(&headers, "actions", None),
            Err(e) => app.ask_who(&headers, "actions", Some(&e)),
        }
    })
    .await
}

/// Does it, if who asks may. What is refused is in the audit as well.
fn perform(app: &Console, who: &Who, action: &act::Action, form: &Fields) -> Result<String, Refusal> {
    let object = action.object(form);
    let note = |result: &str| {
        let line = Line::of(who, action.name, &object, result);
        let written = app.audit.write(app.now(), &line);
        written.map_err(|e| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, e))
    };
    let refuse = |status, why: &str| {
        note(&format!("refused: {why}"))?;
        Err(Refusal::new(status, why))
    };
    if who.role < Role::Operator {
        return refuse(StatusCode::FORBIDDEN, "a viewer's token may not do that: it takes an operator's");
    }
    if !who.sent(form.get("csrf").map(String::as_str)) {
        return refuse(StatusCode::FORBIDDEN, "the form is not of this session: go back, load it anew");
    }
    let order = match action.order(form) {
        Ok(o) => o,
        Err(e) => return refuse(StatusCode::BAD_REQUEST, &e),
    };
    // Nothing is done that cannot be written down.
    note("begun")?;
    assert!(who.role == Role::Operator, "nobody else comes so far");
    let done = app.source.act(&order);
    app.answers.forget();
    match done {
        Ok(said) => note("done").map(|()| said),
        Err(e) => {
            note(&e)?;
            Err(Refusal::new(StatusCode::CONFLICT, e))
        }
    }
}

async fn act_page(
    State(app): Of,
    Path(name): Path<String>,
    headers: HeaderMap,
    Form(form): Form<Fields>,
) -> Response {
    blocking(app, move |app| {
        let Some(action) = act::find(&name) else { return unknown() };
        let who = match app.who(&headers) {
            Ok(Some(who)) => who,
            Ok(None) => return app.ask_who(&headers, "actions", None),
            Err(e) => return app.ask_who(&headers, "actions", Some(&e)),
        };
        match perform(app, &who, action, &form) {
            Ok(said) => html(StatusCode::OK, pages::act::done(action, &who, &action.object(&form), &said)),
            Err(r) if who.role < Role::Operator => html(r.status, pages::act::may_not(action, &who)),
            Err(r) => html(r.status, pages::act::form(action, &who, &form, Some(&r.why))),
        }
    })
    .await
}

async fn act_json(
    State(app): Of,
    Path(name): Path<String>,
    headers: HeaderMap,
    Form(form): Form<Fields>,
) -> Response {
    blocking(app, move |app| {
        let who = match viewer(app, &headers) {
            Ok(who) => who,
            Err(r) => return r.answer(),
        };
        let Some(action) = act::find(&name) else {
            return refused(StatusCode::NOT_FOUND, "there is no such action: /api has them");
        };
        match perform(app, &who, action, &form) {
            Ok(said) => as_json(StatusCode::OK, &json!({"action": action.name, "result": said})),
            Err(r) => r.answer(),
        }
    })
    .await
}

async fn file(Path(name): Path<String>) -> Response {
    let Some((kind, bytes)) = statics::find(&name) else { return unknown() };
    ([(CONTENT_TYPE, kind), (CACHE_CONTROL, "max-age=3600")], Body::from(bytes)).into_response()
}

/// All addresses.
pub fn router(app: Arc<Console>) -> Router {
    Router::new()
        .route("/", get(|| async { see_other("/overview") }))
        .route("/health", get(|| async { "healthy\n" }))
        .route("/login", get(login_page).post(login))
        .route("/logout", post(logout))
        .route("/static/{name}", get(file))
        .route("/api", get(api_list))
        .route("/api/{name}", get(api))
        .route("/api/act/{name}", post(act_json))
        .route("/act/{name}", get(confirm).post(act_page))
        .route("/{name}", get(page))
        .fallback(|| async { unknown() })
        .layer(DefaultBodyLimit::max(BODY_MAX_BYTES))
        .layer(from_fn(guard))
        .with_state(app)
}
