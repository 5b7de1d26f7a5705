/**
 * The statements of the specification, section by section, in our own words. A test claims one by its id in brackets in
 * its name; `test/spec.test.ts` fails for a statement that no test claims and for an id that is not listed here.
 */

export interface StatementGroup {
  readonly title: string;
  /** Id (`S<section>-<number>`) → the statement in one sentence. */
  readonly rows: Readonly<Record<string, string>>;
}

export const STATEMENT_GROUPS: readonly StatementGroup[] = [
  {
    title: "1. What the service does",
    rows: {
      "S1-1": "MCP servers that run as child processes over stdio are served at `/mcp` on a listener.",
      "S1-2": "An MCP route can require OAuth 2.0 bearer tokens (JWT) of an external identity provider.",
      "S1-3": "Adapters for a realm provider and a tenant provider let MCP clients log in.",
      "S1-4": "CEL authorization rules over the token's claims run after authentication.",
      "S1-5": "Limits count requests or LLM tokens, in the process or in an external service.",
      "S1-6": "The trace of one request is recorded step by step and shown by `gwctl proxy trace`.",
      "S1-7":
        "The admin interface is on loopback and has the configuration dump, log level, memory, profiles, tasks and shutdown.",
      "S1-8": "The gateway stands in front of MCP servers, plain HTTP backends and LLM providers.",
      "S1-9": "OAuth metadata lets MCP clients find the authorization server.",
    },
  },
  {
    title: "2.1 Configuration file",
    rows: {
      "S2.1-1": "`gateway -f <file>` loads the file at the start.",
      "S2.1-2": "`${VAR}` in the file is replaced by the environment variable's value.",
      "S2.1-3": "An unset variable ends the process with `environment variable not found`.",
      "S2.1-4": "Layout A: gateways with port and protocol, routes with an optional name, backends and policies.",
      "S2.1-5": "A `host: host:port` backend is a plain HTTP server.",
      "S2.1-6": "MCP targets have a `name` and `stdio` with `cmd` and `args`.",
      "S2.1-7": "Layout B: `mcp` with a port and targets is a listener of its own.",
      "S2.1-8": "`cors` takes allowed origins, allowed headers and exposed headers such as `Mcp-Session-Id`.",
      "S2.1-9": "`mcp.policies` takes `mcpAuthentication` and `authorization`.",
      "S2.1-10": "`config.adminAddr` takes `ip:port`, `unix:/path` or `off`, and nothing else.",
      "S2.1-11": "Without a setting the admin interface is on loopback, port 15000.",
      "S2.1-12": "The section `config` is read at the start only.",
      "S2.1-13": "Headers named in `config.sensitiveHeaders` are redacted in trace and debug output.",
      "S2.1-14": "The section `ui` attaches the web UI to a gateway.",
      "S2.1-15": "A listener has a port, a whole number, and a protocol; `HTTP` is one.",
      "S2.1-16": "The name of a route is optional.",
      "S2.1-17": "With an unset variable the process does not start.",
      "S2.1-18": "A wildcard is allowed among the origins and headers of `cors`.",
      "S2.1-19": "`config.sensitiveHeaders` adds to the headers that are always redacted.",
      "S2.1-20": "`config.sensitiveHeaders` is read at the start only.",
      "S2.1-21": "The file can set the log level at the start.",
      "S2.1-22": "A route can have several backends.",
      "S2.1-23": "`routes[].policies` takes `mcpAuthentication`, `authorization` and other policies.",
      "S2.1-24": "`adminAddr: off` disables the admin interface.",
      "S2.1-25": "Every entry of `config.sensitiveHeaders` must be a valid header name.",
    },
  },
  {
    title: "2.2 `mcpAuthentication`",
    rows: {
      "S2.2-1": "Mode `strict` rejects requests without a token and with a bad one.",
      "S2.2-2": "`issuer` must equal the token's `iss`, and `audiences` lists accepted values of `aud`.",
      "S2.2-3":
        "`provider` has at most one of `idp_realm` and `idp_tenant`, without fields; `audiences` and `resource` are required.",
      "S2.2-4": "`jwks` overrides where the keys are: a URL or a file.",
      "S2.2-5": "`clientId` is what registration returns with `idp_tenant`.",
      "S2.2-6": "`clientSecret` is for confidential clients of `idp_tenant`.",
      "S2.2-7": "`resourceMetadata` names the resource, scopes and bearer methods of the metadata document.",
      "S2.2-8": "Tenant issuers have a v1 and a v2 form.",
      "S2.2-9": "With a provider and without `jwks`, the location of the keys is derived from the issuer.",
      "S2.2-10": "A realm issuer ends in `/realms/<realm>`.",
      "S2.2-11": "`scopesSupported` and `bearerMethodsSupported` are optional.",
      "S2.2-12": "`jwks` can be a local file.",
    },
  },
  {
    title: "2.3 `authorization`",
    rows: {
      "S2.3-1": "Rules are CEL expressions; a request is admitted only when they hold.",
      "S2.3-2": "Claims are readable as `jwt.<claim>`, nested ones and lists with `in` too.",
      "S2.3-3": "A request whose rules do not hold is denied.",
      "S2.3-4": 'Membership is tested with `"<value>" in <list>`.',
    },
  },
  {
    title: "2.4 Protected resource metadata",
    rows: {
      "S2.4-1": "The document has the configured `resource`, `scopes_supported` and `bearer_methods_supported`.",
      "S2.4-2": "`authorization_servers` has one entry: the gateway's own MCP URL.",
      "S2.4-3": "`mcp_protocol_version` is `2025-06-18`, `resource_type` is `mcp-server`.",
      "S2.4-4":
        "The document stands at `/.well-known/oauth-protected-resource/mcp`, whatever the path of the resource.",
      "S2.4-5": "`bearer_methods_supported` and `scopes_supported` are the configured lists.",
    },
  },
  {
    title: "2.5 Authorization-server metadata and registration",
    rows: {
      "S2.5-1": "`registration_endpoint` is the gateway's `client-registration` path.",
      "S2.5-2": "With `idp_realm` the other endpoints are the identity provider's.",
      "S2.5-3":
        'With `idp_tenant` authorize and token are proxied, and `code_challenge_methods_supported` is `["S256"]`.',
      "S2.5-4":
        "With `idp_realm` registration returns the client as the identity provider registered it, with its `client_id`.",
      "S2.5-5": "With `idp_tenant` registration returns `clientId` and `token_endpoint_auth_method: none`.",
      "S2.5-6": "The document at `/.well-known/oauth-authorization-server` has the form of RFC 8414.",
      "S2.5-7":
        "Registration takes `client_name`, `redirect_uris`, `grant_types`, `response_types` and `token_endpoint_auth_method`.",
    },
  },
  {
    title: "2.6 `GatewayPolicy`",
    rows: {
      "S2.6-1": "The resource has `apiVersion`, `kind`, `metadata` and targets of kind `HTTPRoute` or `Gateway`.",
      "S2.6-2": "Entries are independent, and a request must pass all of them.",
      "S2.6-3": "Exactly one of `requests` and `tokens`; `unit` is required; `burst` only with `requests`.",
      "S2.6-4": "`burst` allows extra requests above the base limit.",
      "S2.6-5": "With `key`, each distinct value has a bucket of its own with the entry's limits.",
      "S2.6-6": "A key can read `jwt.<claim>`, `apiKey.user_id`, and `llm.requestModel` in token limits.",
      "S2.6-7": "The status reports the conditions `Accepted` and `Attached` with type, status and message.",
      "S2.6-8": "Tokens are counted from the `usage` object of the response.",
      "S2.6-9": "Targets name the group `gateway.networking.k8s.io`.",
      "S2.6-10": "`unit` is `Seconds`, `Minutes` or `Hours`.",
      "S2.6-11": "A token limit may be keyed by `llm.requestModel`.",
      "S2.6-12": "`Accepted` and `Attached` are reported for each ancestor.",
    },
  },
  {
    title: "2.7 Trace event record",
    rows: {
      "S2.7-1": "An event is a JSON object with `eventStart`, `eventEnd`, `severity` and `message`.",
      "S2.7-2": "`eventStart` is null for point events; offsets are whole numbers.",
      "S2.7-3": "`severity` of an ordinary event is `info`.",
    },
  },
  {
    title: "3. Rate limit budget",
    rows: {
      "S3-1": "Real token counts are debited after the response; the request that overshoots succeeds.",
      "S3-2": "While a budget is exhausted, requests get 429 and are not forwarded.",
      "S3-3": "When the window ends the budget is restored.",
      "S3-4": "The debited counts contain cached tokens, after normalisation.",
    },
  },
  {
    title: "4.1 Data-plane endpoints",
    rows: {
      "S4.1-1":
        "`POST /mcp` with `initialize` is answered with 200, an event stream, `mcp-session-id` and the server's info.",
      "S4.1-2": "The protected resource metadata needs no token.",
      "S4.1-3": "Authorization-server metadata and registration need no token; MCP clients log in through them.",
      "S4.1-4": "An LLM route answers with provider-shaped JSON with `usage`.",
      "S4.1-5": "A stream ends in a `[DONE]` data line.",
      "S4.1-6": "LLM responses carry the rate limit headers.",
      "S4.1-7": "With `idp_tenant`, clients use the authorization code flow with PKCE through the proxied endpoints.",
      "S4.1-8": "An answer is `event: message` whose `data` is the JSON-RPC response.",
      "S4.1-9": "`initialize` answers with `protocolVersion` and `serverInfo` with name, title and version.",
      "S4.1-10": "A protected route answers 401 and 403 as section 7 says.",
      "S4.1-11": "An LLM route takes JSON with `model`, `messages` and an optional `stream`.",
    },
  },
  {
    title: "4.2 Admin endpoints",
    rows: {
      "S4.2-1": "`/config_dump` is JSON with binds, listeners, routes, backends, workloads, services and policies.",
      "S4.2-2": "`/debug/trace` streams the trace of the next request as server-sent events.",
      "S4.2-3": "`/logging` reads the level, `POST ?level=` sets it and answers `current log level is \u2026`.",
      "S4.2-4": "Filters per module use the same syntax.",
      "S4.2-5": "`/memory` shows statistics of the process and its memory.",
      "S4.2-6": "`/debug/pprof/profile` takes `seconds` from 1 to 300 and `frequency` from 1 to 1000.",
      "S4.2-7": "The CPU profile is registered on Linux only; the heap profile has samples on Linux only.",
      "S4.2-8": "`/debug/tasks` is the tree of live tasks.",
      "S4.2-9": "`/quitquitquit` shuts down gracefully.",
      "S4.2-10": "The admin log line reports the address of the web UI.",
      "S4.2-11": "`/config_dump` answers GET.",
      "S4.2-12": "The levels are `error`, `warn`, `info`, `debug` and `trace`.",
      "S4.2-13": "A CPU profile takes 10 seconds at 100 Hz by default.",
      "S4.2-14": "`/debug/pprof/heap` is a heap profile.",
      "S4.2-15": "`/ui` is a copy of the web UI.",
      "S4.2-16": "The admin interface asks for no credentials.",
      "S4.2-17": "`/debug/trace` traces the next request that the proxy handles.",
    },
  },
  {
    title: "4.3 Key-set location and provider behaviour",
    rows: {
      "S4.3-1": "`idp_realm` has its keys at `{issuer}/protocol/openid-connect/certs`.",
      "S4.3-2": "`idp_realm` metadata is built from the OpenID Connect discovery document; registration is proxied.",
      "S4.3-3": "`idp_tenant` has its keys at `<tenant_id>/discovery/v2.0/keys`.",
      "S4.3-4": "`idp_tenant` strips `resource` from proxied authorize and token requests.",
      "S4.3-5": "`idp_tenant` answers registration itself.",
      "S4.3-6": "`clientSecret` is added only to token requests of the two grant types for the configured client.",
      "S4.3-7": "`idp_realm` has no workaround for resource indicators: `audiences` must be what the realm issues.",
      "S4.3-8": "`idp_tenant` serves the tenant's v2.0 OpenID configuration as RFC 8414 metadata.",
    },
  },
  {
    title: "4.4 `gwctl`",
    rows: {
      "S4.4-1": "`proxy trace --local --raw` waits for the next request and prints JSON Lines.",
      "S4.4-2": "A target can be `gateway/<name>`.",
      "S4.4-3": "Without `--raw` a terminal UI opens; `q` quits.",
      "S4.4-4":
        "Inject mode sends the request itself to the listener; the URL's host only sets Host; curl arguments follow.",
      "S4.4-5": "`proxy config all --file <dump> -o yaml` renders a saved dump.",
      "S4.4-6":
        "`proxy profile cpu` takes 30 seconds by default, and fails with 404 where the endpoint does not exist.",
      "S4.4-7": "Profiles go to the file of `-o`, else to one with a timestamp in the working directory.",
      "S4.4-8": "There is no flag for the sampling frequency.",
      "S4.4-9": "`-p <port>` names the admin port.",
      "S4.4-10": "The host of an injected URL is not resolved.",
      "S4.4-11": "Without `-p` the profile commands ask port 15000.",
    },
  },
  {
    title: "5. Authentication",
    rows: {
      "S5-1": "The token is validated against issuer, audience and keys.",
      "S5-2": "Without a token: 401 with `www-authenticate` that names the metadata URL.",
      "S5-3": "A valid token that fails a rule gets 403.",
      "S5-4": "`token_endpoint_auth_method` is `none` for MCP clients.",
      "S5-5": "`Authorization` and `Proxy-Authorization` are always redacted.",
      "S5-6": "Headers that transformations create are redacted too; backends and expressions get the real values.",
      "S5-7": "The UI on a gateway can stand behind an authentication policy.",
      "S5-8": "A protected MCP route requires a bearer JWT in the `authorization` header.",
      "S5-9": "With `idp_realm`, a token without the configured audience fails validation.",
      "S5-10":
        "Anonymous registration needs the realm's trusted-hosts policy to allow the hosts; its refusal reaches the client.",
      "S5-11":
        "With `idp_tenant`, codes of a single-page application are rejected by the provider; the login check says what to change.",
      "S5-12": "With `idp_tenant`, confidential registrations need `clientSecret` and public clients use PKCE only.",
      "S5-13": "A tenant token whose `aud` is `api://<client_id>` or `<client_id>` is accepted when both are listed.",
      "S5-14": "MCP clients are public clients with the authorization code flow and PKCE.",
      "S5-15": "Redaction concerns trace and debug output only.",
      "S5-16": "Metadata and registration need no token.",
      "S5-17": "The admin interface can be bound to all interfaces.",
    },
  },
  {
    title: "6. Events",
    rows: {
      "S6-1": "A trace has the events of the table, with their stages and fields, in that order.",
      "S6-2": "`policySelection` comes once per phase.",
      "S6-3": "`bodySnapshot` comes only when a body is present.",
      "S6-4": "`backendCallResult` carries the transport error.",
      "S6-5":
        "Events are listed as Request Start, Snapshot, Route, Policies, Backend Start, Backend Result, Request Done.",
      "S6-6": "`requestStarted`: the request was accepted.",
      "S6-7":
        "`initial request` shows method, uri, path and host of the request, `env` and `source` with address and port.",
      "S6-8": "`policySelection` has a phase and the merged `effectivePolicy`.",
      "S6-9": "`gateway policies` is the request after the policies of the gateway.",
      "S6-10": "`routeSelection` has `selectedRoute` and `evaluatedRoutes`.",
      "S6-11": "`route policies` is the request after the policies of the route.",
      "S6-12": "`final request` is the request as sent, with `backend` (name, type, protocol).",
      "S6-13": "`backendCallStart` has the target, `host:port`.",
      "S6-14": "Bodies are base64.",
      "S6-15": "`backendCallResult` has the status, and null as error.",
      "S6-16": "`raw response` has the code and the durations of the proxy, strings of seconds.",
      "S6-17":
        "`backend response ready` is the response before response processing, `final response` the one that the client gets.",
      "S6-18": "`requestFinished`: the request is complete.",
    },
  },
  {
    title: "7. Errors",
    rows: {
      "S7-1": 'No token: `{"error":"unauthorized","error_description":"JWT token required"}`.',
      "S7-2": "Exhausted budget: 429, not forwarded; a streaming request reads `rate limit exceeded`.",
      "S7-3": "Under global limiting the service's `x-vendor-ratelimited` is on the 429.",
      "S7-4": "An invalid name in `config.sensitiveHeaders` stops the start.",
      "S7-5": "Errors of the identity provider reach the client.",
      "S7-6": "An invalid or expired token, or one with a wrong issuer or audience, is rejected.",
      "S7-7": "A rule that denies is 403.",
      "S7-8": "The CPU profile of another platform than Linux is 404.",
      "S7-9": "The realm's 403 `HTTPS required` reaches the client, and the log explains it.",
      "S7-10": "`invalid_grant`, `Account is not fully set up` reaches the client, and the log explains it.",
      "S7-11":
        "`Policy 'Trusted Hosts' rejected request to client-registration service` reaches the client, and the log explains it.",
      "S7-12": "`AADSTS9010010` cannot come from `resource`: the gateway strips it.",
      "S7-13": "`AADSTS9002327` reaches the client, and the log explains it.",
      "S7-14": "`AADSTS7000218` reaches the client, and the log explains it.",
    },
  },
  {
    title: "8. Limits",
    rows: {
      "S8-1": "Local counters are independent on each replica; global ones are shared.",
      "S8-2": "The key of a request limit cannot read `llm.*`: it uses the shared bucket.",
      "S8-3": "A token limit charges an estimate at admission and settles the real counts afterwards.",
      "S8-4": "Cached tokens count toward the input, normalised across providers.",
      "S8-5": "A response is never cut in the middle of its stream.",
      "S8-6": "A rule keeps up to 65,536 buckets and drops the least used.",
      "S8-7": "Requests whose key is empty or fails share one bucket and are not exempt.",
      "S8-8": "A limit on a gateway is a ceiling across its routes; one on a route applies to that route.",
      "S8-9": "Responses carry `x-ratelimit-limit` (base plus burst), `-remaining` and `-reset`.",
      "S8-10": "A global limit may name its window: `;w=<seconds>`.",
      "S8-11": "`x-vendor-ratelimited` comes only from the external service.",
      "S8-12": "Request limits are checked before the body is parsed.",
      "S8-13": "Both modes support request and token limits.",
      "S8-14": "Failing any one entry gives 429.",
      "S8-15": "A key that reads a value which is not in its context uses the shared bucket.",
      "S8-16": "Where a provider's input count excludes cached tokens, a request debits more than the reported input.",
      "S8-17": "A change of the admin address needs a restart.",
      "S8-18": "`x-ratelimit-reset` is the number of seconds until the window ends.",
      "S8-19": "`gwctl proxy profile cpu` takes 30 seconds by default.",
      "S8-20": "Buckets live in the memory of one replica.",
      "S8-21": "An overshooting request succeeds; later ones get 429 until the window ends.",
    },
  },
  {
    title: "9. Versioning",
    rows: {
      "S9-1": "Policy resources use `v1alpha1`.",
      "S9-2": "`initialize` with protocol version `2024-11-05` is accepted.",
      "S9-3": "`gwctl proxy trace` says that it is experimental.",
      "S9-4": "The protected resource metadata reports `mcp_protocol_version` `2025-06-18`.",
      "S9-5": "`policySelection` comes once per phase.",
      "S9-6": "Profiles differ by platform: Linux only.",
      "S9-7": "Realm metadata is made from discovery, so that realms without RFC 8414 metadata work.",
      "S9-8": "Registration through the gateway needs no CORS at the realm.",
    },
  },
];

export const STATEMENTS: ReadonlyMap<string, string> = new Map(
  STATEMENT_GROUPS.flatMap(({ rows }) => Object.entries(rows)),
);
