/**
 * The statements of the specification about the service, its configuration and its budgets (sections 1 to 3), in our own words; `statements.ts` says how tests claim them.
 */
import type { StatementGroup } from "./statement-group.ts";

export const CONFIGURATION_STATEMENTS: readonly StatementGroup[] = [
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
];
