/**
 * Every limit of the gateway in words: what it bounds and what happens beyond. The values are read from the code (a
 * constant in a file, or the default of a setting), so that this table cannot say another one; a constant named `MAX_…`
 * that is missing here fails `test/docs.test.ts`.
 */
import { readdirSync, readFileSync } from "node:fs";
import { join, relative } from "node:path";

/** Rows: [constant, file below `src/`, what it bounds, what happens beyond], or [setting, what, beyond]. */
const LIMITS = {
  "Requests and responses": [
    ["MAX_WORKERS", "config/schema/schema.ts", "threads (`config.workers`)", "the configuration is rejected"],
    [
      "maxConnections",
      "pipeline/listen/listener-env.ts",
      "connections of one listener",
      "further ones are closed before they are read",
    ],
    ["headersTimeoutMs", "pipeline/listen/listener-env.ts", "time for a request's head", "408 `request_timeout`"],
    ["MAX_HEAD_BYTES", "lib/http1/request-parser.ts", "a request's head", "431 `too_many_headers`"],
    ["MAX_TRAILER_BYTES", "lib/http1/request-parser.ts", "a request's trailers", "431 `too_many_headers`"],
    ["MAX_TRAILER_LINES", "lib/http1/request-parser.ts", "lines of a request's trailers", "431 `too_many_headers`"],
    ["MAX_SIZE_DIGITS", "lib/http1/request-parser.ts", "hex digits of a request chunk's size", "400 `bad_request`"],
    ["MAX_EXTENSION_BYTES", "lib/http1/request-parser.ts", "chunk extensions of a request", "413 `body_too_large`"],
    ["MAX_EMPTY_LINES", "lib/http1/empty-lines.ts", "empty lines before a request", "400 `bad_request`"],
    [
      "MAX_PIPELINED_BYTES",
      "pipeline/listen/client-connection.ts",
      "what a client sends behind a request that is not answered yet",
      "not read until it is",
    ],
    [
      "LINGER_SILENCE_MS",
      "pipeline/listen/linger.ts",
      "silence of a client after the last answer of its connection",
      "the connection is closed",
    ],
    [
      "LINGER_MS",
      "pipeline/listen/linger.ts",
      "time of a client that goes on sending after that",
      "the connection is cut",
    ],
    [
      "MAX_LINGER_BYTES",
      "pipeline/listen/linger.ts",
      "what a client may send after that; it is thrown away",
      "the connection is cut",
    ],
    [
      "MAX_STREAM_HEAD_BYTES",
      "pipeline/listen/http2/stream-head.ts",
      "the head of an HTTP/2 request",
      "431 `too_many_headers`; twice as much: the stream is reset",
    ],
    [
      "MAX_FIELDS",
      "pipeline/listen/http2/http2-connection.ts",
      "header lines of an HTTP/2 request, also over CONTINUATION frames",
      "the stream is reset",
    ],
    [
      "MAX_STREAMS",
      "pipeline/listen/http2/http2-connection.ts",
      "requests of one HTTP/2 connection at once",
      "refused",
    ],
    [
      "MAX_RESETS",
      "pipeline/listen/http2/http2-connection.ts",
      "HTTP/2 requests that a client gives up in one second",
      "the connection is closed (ENHANCE_YOUR_CALM)",
    ],
    [
      "MAX_CONTROL_FRAMES",
      "pipeline/listen/http2/http2-connection.ts",
      "SETTINGS and PING frames of a client in one second",
      "the connection is closed (ENHANCE_YOUR_CALM)",
    ],
    [
      "MAX_SESSION_MIB",
      "pipeline/listen/http2/http2-connection.ts",
      "memory of one HTTP/2 connection, in MiB",
      "new streams are refused",
    ],
    [
      "MAX_ANSWER_FIELDS",
      "lib/http2/http2-pool.ts",
      "header lines of a backend's answer over HTTP/2",
      "502 `backend_response_invalid`",
    ],
    ["MAX_HEADER_LINES", "pipeline/listen/edge.ts", "header lines of a request", "431 `too_many_headers`"],
    ["MAX_SHADOW_RULES", "pipeline/records/shadow-report.ts", "rules in the shadow report", "denials are only counted"],
    [
      "MAX_SHADOW_SUBJECTS",
      "pipeline/records/shadow-report.ts",
      "subjects per rule in the shadow report",
      "only counted",
    ],
    ["MAX_SHADOW_EXAMPLES", "pipeline/records/shadow-report.ts", "examples per rule in the shadow report", "left out"],
    ["MAX_RULE_CHARS", "pipeline/records/shadow-report.ts", "a rule in the shadow report", "cut"],
    ["MAX_MIRROR_ENTRIES", "pipeline/records/mirror-report.ts", "mirrors in the mirror report", "only counted"],
    [
      "MAX_MIRROR_DIFFERENCES",
      "pipeline/records/mirror-report.ts",
      "differences per mirror in the mirror report",
      "only counted",
    ],
    [
      "MAX_COMPARED_BYTES",
      "policies/request-mirror/compare-answers.ts",
      "a compared body",
      "its shape is not compared",
    ],
    [
      "MAX_DECODED_BYTES",
      "policies/request-mirror/compare-answers.ts",
      "a compared body, decompressed",
      "its shape is not compared",
    ],
    [
      "MAX_WAITING_BYTES",
      "policies/request-mirror/compare-answers.ts",
      "all bodies that wait to be compared",
      "their shapes are not compared",
    ],
    [
      "MAX_SHAPE_VALUES",
      "policies/request-mirror/json-shape.ts",
      "values of a compared body",
      "the rest is not compared",
    ],
    ["MAX_SHAPE_DEPTH", "policies/request-mirror/json-shape.ts", "nesting of a compared body", "not compared deeper"],
    [
      "MAX_SHAPE_DIFFERENCES",
      "policies/request-mirror/json-shape.ts",
      "differences named of one pair of answers",
      "left out",
    ],
    ["MAX_RECORD_BYTES", "pipeline/records/fact-ring.ts", "a recorded request (head, claims)", "not recorded"],
    ["MAX_SEGMENTS", "pipeline/records/fact-ring.ts", "buffers of 128 KiB for recorded requests", "the oldest go"],
    ["MAX_UNREAD_BYTES", "admin/change/recording.ts", "unread lines of a recording", "lines are left out"],
    ["MAX_REHEARSED_BYTES", "admin/change/rehearse.ts", "a configuration to rehearse over the admin interface", "413"],
    ["MAX_REHEARSAL_MS", "app/change/rehearsals.ts", "time for a rehearsal", "500"],
    ["MAX_REHEARSED_ROWS", "app/change/rehearsal-report.ts", "rows of each list of a rehearsal", "only counted"],
    [
      "MAX_REHEARSED_LINES",
      "app/change/recording-file.ts",
      "requests of a recording that are rehearsed",
      "the last ones count",
    ],
    ["MAX_RECORDING_BYTES", "cli/replay/record-command.ts", "a recording of `gwctl record`", "recording ends"],
    ["MAX_CACHE_TTL_MS", "policies/ext-authz/policy.ts", "`cache.ttl` of `extAuthz`", "the configuration is rejected"],
    ["MAX_CACHED_VERDICTS", "policies/ext-authz/policy.ts", "verdicts that `extAuthz` remembers", "the oldest go"],
    ["MAX_CANARY_WINDOW_MS", "config/schema/canary-schema.ts", "`canary.window`", "the configuration is rejected"],
    ["MAX_WALK_MS", "pipeline/dry-run/dry-run.ts", "time for the policies of a dry run", "an error"],
    ["MAX_REPEATS", "admin/change/what-if.ts", "`repeat` of `/debug/what-if`", "400"],
    ["MAX_REPEATS", "config/schema/tests-schema.ts", "`repeat` of a test", "the configuration is rejected"],
    ["MAX_TARGET_CHARS", "pipeline/listen/edge.ts", "path and query", "400 `bad_request`"],
    [
      "MAX_SHOWN_CHARS",
      "pipeline/listen/edge-refusal.ts",
      "host, path or query of a request refused at the edge, in logs and traces",
      "cut",
    ],
    [
      "MAX_SHOWN_LINES",
      "pipeline/listen/edge-refusal.ts",
      "header lines shown of a request refused at the edge",
      "left out",
    ],
    ["IDLE_LIMIT_MS", "pipeline/listen/idle.ts", "time without a byte of a body", "the connection is closed"],
    [
      "MAX_HELD_BODY_BYTES",
      "pipeline/phases/run-hooks.ts",
      "a request body that an expression reads",
      "413 `body_too_large`",
    ],
    [
      "MAX_HELD_BYTES",
      "pipeline/phases/delivery.ts",
      "a response body that an expression reads",
      "it passes on; the expression finds no body",
    ],
    [
      "MAX_LLM_BODY_BYTES",
      "pipeline/phases/llm-sight.ts",
      "a request body under a token limit on a plain backend",
      "413 `body_too_large`",
    ],
    [
      "MAX_FAILURES",
      "pipeline/phases/failures.ts",
      "failures while one request is answered",
      "the connection is closed",
    ],
    ["MAX_PROBLEM_CHARS", "pipeline/phases/attempt.ts", "the reason of a failed attempt in logs and traces", "cut"],
    [
      "MAX_MIRRORED_BYTES",
      "policies/request-mirror/policy.ts",
      "a request body that is mirrored",
      "the request is not mirrored",
    ],
    [
      "MAX_COPIES",
      "policies/request-mirror/policy.ts",
      "copies to one mirror at once",
      "further requests are not mirrored",
    ],
    ["MAX_ATTEMPTS", "policies/retry/policy.ts", "`retry.attempts`", "the configuration is rejected"],
    ["MAX_HEAD_BYTES", "lib/http1/response-parser.ts", "a backend's response head", "502 `backend_response_invalid`"],
    ["MAX_TRAILER_BYTES", "lib/http1/response-parser.ts", "a backend's trailers", "the response breaks off"],
    ["MAX_TRAILER_LINES", "lib/http1/response-parser.ts", "lines of a backend's trailers", "the response breaks off"],
    ["MAX_SIZE_DIGITS", "lib/http1/response-parser.ts", "hex digits of a chunk's size", "the response breaks off"],
    [
      "MAX_EXTENSION_BYTES",
      "lib/http1/response-parser.ts",
      "chunk extensions of one response",
      "the response breaks off",
    ],
    [
      "MAX_INTERIM",
      "lib/http1/response-parser.ts",
      "interim (1xx) answers before the real one",
      "502 `backend_response_invalid`",
    ],
    [
      "LIMIT_MS",
      "lib/http/lookup.ts",
      "time for resolving a backend's name",
      "the last good address is used, else 502 `backend_unavailable`",
    ],
  ],
  Overload: [
    ["TIGHT", "lib/process/heap-pressure.ts", "share of the memory in use", "connections are not kept"],
    [
      "FULL",
      "lib/process/heap-pressure.ts",
      "share of the memory in use",
      "503 `overloaded` for new requests; not ready",
    ],
  ],
  MCP: [
    ["mcp.maxSessions", "sessions of one backend", "503"],
    ["mcp.maxChildren", "child processes of one backend", "the session that was idle longest makes room, else 503"],
    ["mcp.sessionIdleTtl", "time without requests and streams", "the session is ended"],
    ["mcp.parkAfter", "time after a client closed its event stream", "its processes are stopped until it comes back"],
    [
      "OPEN_WAIT_MS",
      "mcp/many/late-targets.ts",
      "time that a session waits for a slow server with `failOpen`",
      "it opens without, and is told when the server is up",
    ],
    ["mcp.requestTimeout", "time that a server is silent about a request", "the call fails"],
    [
      "MAX_CALL_MS",
      "mcp/servers/pending-call.ts",
      "time of one call, however often it reports progress",
      "the call fails",
    ],
    ["mcp.maxRequestBytes", "a client's message", "413 with -32600"],
    ["mcp.maxMessageBytes", "a message of a server", "the call fails; a child is stopped"],
    [
      "MAX_DISCARDED_BYTES",
      "mcp/clients/read-body.ts",
      "what is read of a larger message to find its id",
      "413 without the id",
    ],
    [
      "MAX_ID_WINDOW_BYTES",
      "mcp/clients/read-body.ts",
      "where the id of a larger message is looked for",
      "413 without the id",
    ],
    ["MAX_LINE", "mcp/servers/start-gate.ts", "starts that wait in line", "503"],
    ["MAX_NAME_CHARS", "mcp/wire/message-rules.ts", "a method, a name or a URI", "400 with -32602 or -32600"],
    ["MAX_REASON_TEXT_CHARS", "mcp/sessions/call-outcome.ts", "what is read of a server's error message", "cut"],
    ["MAX_TOOLS", "mcp/servers/known-tools.ts", "tools of one server with a metric of their own", "`other`"],
    ["MAX_UNPROVEN_TOOLS", "mcp/servers/known-tools.ts", "of these, tools that never succeeded", "`other`"],
    ["MAX_TOOL_LABEL_CHARS", "mcp/servers/known-tools.ts", "a tool's name in metrics", "`other`"],
    [
      "MAX_LIST_PAGES",
      "mcp/tools/tool-upstream.ts",
      "pages of a tool list that are compared",
      "its tools are withheld",
    ],
    ["MAX_INSPECTED_PAGES", "mcp/tools/inspect-tools.ts", "pages of a list that `gwctl mcp lock` reads", "cut"],
    ["MAX_QUARANTINED", "mcp/tools/quarantine.ts", "withheld tools of one server that are told", "not told"],
    ["MAX_DEFINITION_CHARS", "mcp/tools/quarantine.ts", "a withheld definition that is kept", "not kept"],
    ["MAX_DIFF_LINES", "mcp/tools/tool-lock.ts", "lines of a difference", "cut"],
    ["MAX_COMPARED_LINES", "mcp/tools/tool-lock.ts", "lines that are compared one by one", "compared as a whole"],
    ["MAX_LOOKED_AT_CHARS", "mcp/tools/injection-markers.ts", "a tool's texts", "suspicious"],
    ["MAX_GUARDED_CHARS", "mcp/tools/guarded-result.ts", "texts of a guarded result", "the result is refused"],
    ["MAX_SEARCHED_PAGES", "mcp/many/search-router.ts", "pages of a list that is searched", "cut"],
    ["MAX_SEARCHED_TOOLS", "mcp/many/search-router.ts", "tools that are searched", "the rest is not found"],
    ["MAX_SEARCHED_CHARS", "mcp/many/search-router.ts", "the definition of a tool that is searched", "it is not found"],
    ["MAX_FOUND", "mcp/many/search-router.ts", "tools that `find_tools` shows at a time", "asked for with `offset`"],
    ["MAX_SUMMARY_CHARS", "mcp/many/search-router.ts", "what `find_tools` shows of a description", "cut"],
    ["MAX_QUESTION_WORDS", "mcp/many/tool-search.ts", "words of a search", "the first count"],
    ["MAX_READ_CHARS", "mcp/many/tool-search.ts", "what a search reads of a description", "cut"],
    [
      "MAX_ARGUMENT_CHARS",
      "core/mcp-arguments.ts",
      "arguments of a call that rules read",
      "reading them is an error: rules deny",
    ],
    ["MAX_ARGUMENT_VALUES", "core/mcp-arguments.ts", "values in them", "the same"],
    ["MAX_ARGUMENT_DEPTH", "core/mcp-arguments.ts", "their nesting", "the same"],
    [
      "MAX_DESCRIPTION_FILE_BYTES",
      "backends/mcp/resolve-target.ts",
      "an OpenAPI description in a file",
      "the load fails",
    ],
    [
      "MAX_DESCRIPTION_BYTES",
      "mcp/openapi/api.ts",
      "an OpenAPI description that is fetched",
      "the server has no tools",
    ],
    ["MAX_YAML_CHARS", "mcp/openapi/document.ts", "an OpenAPI description in YAML", "the same"],
    ["MAX_REFERENCES", "mcp/openapi/document.ts", "references in a row", "the operation is left out"],
    ["MAX_OPERATIONS", "mcp/openapi/operations.ts", "operations of an API", "the others are left out"],
    ["MAX_SCHEMA_CHARS", "mcp/openapi/schema-text.ts", "the schema of a tool", "its body is any object"],
    ["MAX_SCHEMA_DEPTH", "mcp/openapi/schema-text.ts", "its nesting", "the same"],
    ["MAX_DESCRIPTION_CHARS", "mcp/openapi/operations.ts", "the description of a tool or argument", "cut"],
    ["MAX_OPERATION_NAME_CHARS", "mcp/openapi/operations.ts", "the name of a tool", "cut"],
    ["MAX_ERROR_CHARS", "mcp/openapi/result.ts", "what a client is told of an error response", "cut"],
    ["MAX_INSTRUCTIONS_CHARS", "mcp/openapi/openapi-channel.ts", "the API's description as instructions", "cut"],
    ["MAX_API_CALLS", "mcp/openapi/openapi-channel.ts", "calls under way at one API in one session", "calls fail"],
    ["MAX_METADATA_BYTES", "mcp/logins/oauth-server.ts", "metadata of an authorization server", "the login fails"],
    [
      "MAX_CHALLENGE_CHARS",
      "mcp/transports/remote-server.ts",
      "a server's challenge that clients get",
      "not passed on",
    ],
    ["MAX_RELAYED_FORM_BYTES", "backends/mcp/login-relay.ts", "a token request that is passed on", "413"],
    ["MAX_RELAYED_ANSWER_BYTES", "backends/mcp/login-relay.ts", "the answer to it", "503"],
    [
      "MAX_EXCHANGED_TOKENS",
      "mcp/logins/token-exchange.ts",
      "exchanged tokens kept for a server",
      "the oldest is forgotten",
    ],
    ["MAX_TEST_BYTES", "mcp/logins/accounts.ts", "a response to `gwctl mcp connections --test`", "the test fails"],
    ["MAX_A2A_REQUEST_BYTES", "backends/a2a/backend.ts", "a request to an A2A agent", "413"],
    ["MAX_CARD_BYTES", "backends/a2a/agent-card.ts", "an A2A agent's card", "502"],
    ["MAX_SKILLS", "backends/a2a/agent-card.ts", "skills of a card in `a2a.skills`", "the rest is left out"],
    ["MAX_TOKEN_BYTES", "mcp/logins/oauth-client.ts", "a response of a token endpoint", "the login fails"],
    [
      "MAX_CACHED_LOGINS",
      "mcp/logins/server-login.ts",
      "users whose tokens are in memory",
      "read from the store again",
    ],
    ["MAX_BATCH", "mcp/clients/downstream.ts", "messages of a batch", "400"],
    ["MAX_DEPTH", "mcp/wire/json-rpc.ts", "nesting of a message", "parse error (-32700)"],
    ["MAX_TOKENS", "mcp/wire/json-text.ts", "names, commas and brackets of a client's message", "parse error (-32700)"],
    ["MAX_ID_CHARS", "mcp/wire/json-rpc.ts", "a request's id", "invalid request (-32600)"],
    ["MAX_QUEUED_BYTES", "mcp/transports/child-process.ts", "what waits for a server that does not read", "calls fail"],
    [
      "GRACE_MS",
      "mcp/transports/child-process.ts",
      "time to leave after the end of stdin, and after TERM",
      "TERM, then KILL",
    ],
    ["KEPT_LINES", "mcp/transports/stderr-tail.ts", "kept lines of a server's stderr", "the oldest is dropped"],
    ["MAX_LINE_CHARS", "mcp/transports/stderr-tail.ts", "a line of stderr", "cut"],
    ["MAX_WAIT_MS", "mcp/servers/start-gate.ts", "time that a session waits for its server's start", "503"],
    [
      "MAX_FAILED_STARTS",
      "mcp/sessions/session.ts",
      "failed starts of a server in a row",
      "the session gives the server up",
    ],
    ["MAX_PAUSE_MS", "mcp/servers/reconnect-pauses.ts", "pause between two attempts to connect", "it grows no further"],
    ["MAX_WAITING", "mcp/servers/server-link.ts", "calls that wait for a connection to a server", "503"],
    [
      "MAX_UNDER_WAY",
      "mcp/transports/http-channel.ts",
      "calls under way at one remote server in one session",
      "calls fail",
    ],
    [
      "MAX_RETRY_MS",
      "mcp/transports/http-exchange.ts",
      "pause that a server may ask for before a stream is opened again",
      "the limit counts",
    ],
    ["MAX_RESUMES", "mcp/transports/http-channel.ts", "attempts to resume one stream", "the call fails"],
    [
      "PAUSE_BYTES",
      "mcp/streams/event-stream.ts",
      "what waits for a client that does not read",
      "the server is paused",
    ],
    [
      "MAX_QUEUED_BYTES",
      "mcp/streams/event-stream.ts",
      "the same, when the server cannot be paused",
      "the client is cut off",
    ],
    [
      "MAX_QUEUED_BYTES",
      "mcp/sessions/modern-call.ts",
      "what waits for a client that does not read, one call",
      "the client is cut off",
    ],
    [
      "MAX_LISTENERS",
      "mcp/streams/listeners.ts",
      "GET requests open at one event stream of a session",
      "one that is 30 s old makes room, else 409",
    ],
    ["MAX_EVENTS", "mcp/streams/event-log.ts", "events kept for a client that resumes", "the oldest is dropped"],
    ["MAX_BYTES", "mcp/streams/event-log.ts", "their size", "the oldest is dropped"],
    ["KEPT_MS", "mcp/streams/event-log.ts", "their age", "dropped"],
    ["MAX_PARKED", "mcp/eras/modern-over-legacy.ts", "calls that wait for their client to come back", "the call fails"],
    ["MAX_PARKED_MS", "mcp/eras/modern-over-legacy.ts", "how long they wait", "the call is given up"],
    [
      "MAX_PAGES",
      "mcp/many/name-index.ts",
      "pages of a server's list that are read for a name",
      "the rest is not found",
    ],
    ["MAX_QUESTIONS", "mcp/servers/conversation.ts", "open questions of a server", "error -32603 to the server"],
    ["MAX_ID_CHARS", "mcp/transports/incoming.ts", "the id of a server's request", "the request is refused"],
    ["MAX_BATCH_CHARS", "mcp/transports/incoming.ts", "a batch of a server, in characters", "its calls get no answer"],
    ["MAX_ERROR_CHARS", "mcp/transports/incoming.ts", "an error of a server, in characters", "the call fails"],
    ["MAX_SERVER_DEPTH", "mcp/wire/json-check.ts", "nesting of a server's message", "the call fails"],
    ["MAX_ATOM_CHARS", "mcp/wire/json-check.ts", "a name or number in a server's message", "the call fails"],
    ["MAX_OPEN_NAMES", "mcp/wire/json-check.ts", "names of one object in a server's message", "the call fails"],
    ["MAX_SAID_CHARS", "mcp/transports/http-answer.ts", "what is read of the body of a failed call", "cut"],
    ["MAX_INPUTS", "mcp/eras/legacy-over-modern.ts", "questions of one round", "the call fails"],
    [
      "MAX_POSTS",
      "mcp/transports/sse-channel.ts",
      "messages that an HTTP+SSE server has not accepted yet",
      "calls fail",
    ],
    ["MAX_ROUNDS", "mcp/eras/legacy-over-modern.ts", "rounds of questions in one call", "the call fails"],
    ["MAX_RESOURCES", "mcp/eras/subscription-filter.ts", "resources of one subscription", "the rest is ignored"],
    [
      "MAX_TOOLS",
      "mcp/servers/param-headers.ts",
      "tools whose parameters are mirrored in headers",
      "the rest has no such headers",
    ],
    [
      "MAX_LEARNED_CHARS",
      "mcp/servers/param-headers.ts",
      "a page of a tool list that is read for such parameters",
      "its tools have no such headers",
    ],
    ["MAX_DEPTH", "mcp/servers/param-headers.ts", "nesting of such parameters", "deeper ones are ignored"],
    ["MAX_REASON_CHARS", "mcp/servers/upstream-failures.ts", "the reason of a failure in errors and logs", "cut"],
  ],
  LLM: [
    ["ai.maxBodyBytes", "a request body", "413 `request_too_large`"],
    ["ai.maxTreeBytes", "a request body besides images, where the text must be read", "413 `request_too_large`"],
    [
      "MAX_TREE_TOKENS",
      "llm/wire/skeleton.ts",
      "commas, colons and brackets of a request that is translated or changed",
      "413 `request_too_large`",
    ],
    [
      "MAX_ERROR_BYTES",
      "backends/ai/target-attempt.ts",
      "a provider's 400 that is read for a prompt that is too long",
      "it passes on as it comes",
    ],
    [
      "MAX_TEXTS",
      "llm/translate/embeddings.ts",
      "a list of texts for a model that embeds one at a time",
      "400 `unsupported_parameter`",
    ],
    [
      "MAX_CALLS_AT_ONCE",
      "backends/ai/requests/part-calls.ts",
      "calls at a time for such a list",
      "the others wait for their turn",
    ],
    [
      "MAX_ANSWERS_BYTES",
      "backends/ai/requests/part-calls.ts",
      "the answers to such a list together",
      "400, as soon as the first answers show it",
    ],
    ["MAX_NAMED", "llm/form/losses.ts", "names of dropped parameters in a response header", "the rest is not named"],
    ["MAX_NAME_CHARS", "llm/form/losses.ts", "a name there", "it is cut"],
    ["MAX_PARTS", "llm/dialects/scan-form.ts", "parts of a form with files", "400 `invalid_request_body`"],
    ["MAX_PART_HEAD_BYTES", "llm/dialects/scan-form.ts", "the head of such a part", "400 `invalid_request_body`"],
    ["MAX_DOUBLINGS", "backends/ai/models/health.ts", "doublings of a failed provider's pause", "the pause stays"],
    ["MAX_DEPTH", "llm/dialects/scan-request.ts", "nesting of a request", "400 `invalid_request_body`"],
    [
      "MAX_SYNTAX_BYTES",
      "llm/dialects/scan-request.ts",
      "a request's JSON outside of strings: brackets, numbers, blanks",
      "400 `invalid_request_body`",
    ],
    [
      "MAX_VALUE_BYTES",
      "llm/dialects/scan-request.ts",
      "a member that the gateway reads",
      "400 `invalid_request_body`",
    ],
    ["MAX_MODEL_CHARS", "llm/dialects/scan-request.ts", "the name of a model", "400"],
    [
      "MAX_ANSWER_BYTES",
      "backends/ai/answers/translated-answer.ts",
      "a JSON answer that is translated",
      "502 `upstream_error`",
    ],
    [
      "MAX_ANSWER_OBJECTS",
      "backends/ai/answers/translated-answer.ts",
      "objects of a JSON answer that is translated",
      "502 `upstream_error`",
    ],
    [
      "MAX_EVENT_BYTES",
      "backends/ai/answers/translated-answer.ts",
      "an event that is translated",
      "the stream ends with an error",
    ],
    ["MAX_ANSWER_BYTES", "backends/ai/answers/guarded-call.ts", "a JSON answer under a guard", "502 `upstream_error`"],
    [
      "MAX_EVENT_BYTES",
      "backends/ai/answers/guarded-call.ts",
      "an event under a guard",
      "the stream ends with an error",
    ],
    ["MAX_EVENT_BYTES", "llm/usage/answer-reader.ts", "an event that is read for its usage", "it passes on unread"],
    ["MAX_VALUE_BYTES", "llm/usage/answer-reader.ts", "a member that is read for its usage", "it passes on unread"],
    [
      "MAX_ENCODED_BYTES",
      "llm/usage/answer-reader.ts",
      "a compressed answer that is read for its usage",
      "its usage is estimated",
    ],
    [
      "MAX_CONTENT_BYTES",
      "llm/usage/answer-content.ts",
      "a JSON or compressed answer that is read for its audit record",
      "the record says `result_unread`",
    ],
    [
      "MAX_CONTENT_EVENT_BYTES",
      "llm/usage/answer-content.ts",
      "the same, one event of a stream",
      "the record says `result_unread`",
    ],
    ["MAX_DECODED_BYTES", "llm/wire/decode-answer.ts", "a compressed answer that is translated, decompressed", "502"],
    [
      "MAX_READ_DECODED_BYTES",
      "llm/usage/answer-reader.ts",
      "a compressed answer that is read for its usage, decompressed",
      "its usage is estimated",
    ],
    [
      "MAX_CONTENT_TOKENS",
      "llm/usage/answer-content.ts",
      "commas, colons and brackets of a JSON answer that is read for its audit record",
      "the record says `result_unread`",
    ],
    [
      "MAX_EVENT_TOKENS",
      "llm/wire/event-body.ts",
      "commas, colons and brackets of an event",
      "under a guard or translated: the stream ends with an error; else only its end is read for its usage",
    ],
    ["MAX_SAMPLED_BYTES", "llm/usage/answer-reader.ts", "text that is kept for an estimate", "the rest is not sampled"],
    [
      "MAX_HELD_BYTES",
      "llm/usage/hide-usage.ts",
      "an unfinished event that may be a usage event",
      "it passes on as it comes",
    ],
    ["MAX_LOOKED_AT", "llm/usage/quick-usage.ts", "bytes that are searched for a usage", "the event is read in full"],
    ["MAX_TOKENS", "llm/usage/usage.ts", "a count of tokens that a provider says", "it is ignored"],
    [
      "MAX_BYTES",
      "backends/ai/credentials/token-request.ts",
      "an answer of a token endpoint",
      "503 `provider_credential_unavailable`",
    ],
    [
      "MAX_BYTES",
      "backends/ai/credentials/aws-remote-keys.ts",
      "an answer of AWS's credential endpoints",
      "503 `provider_credential_unavailable`",
    ],
    ["MAX_KNOWN_SERIES", "llm/usage/llm-metrics.ts", "series that are kept at hand", "slower, still counted"],
  ],
  "Rate limits": [
    ["MAX_BUCKETS", "policies/rate-limit/bucket-store.ts", "keys of one limit", "the fullest bucket makes room"],
    [
      "MAX_REFRESHED",
      "policies/rate-limit/bucket-store.ts",
      "buckets that are brought up to date per eviction",
      "the rest waits",
    ],
    ["MAX_KEY_LENGTH", "cel/limit-key.ts", "a key's characters", "its SHA-256 stands for it"],
    ["MAX_ENTRIES", "policies/rate-limit/schema.ts", "limits of one policy", "the configuration is rejected"],
    ["MAX_LIMIT", "policies/rate-limit/schema.ts", "the budget of a limit", "the configuration is rejected"],
    [
      "MAX_REMEMBERED_KEYS",
      "identity/passwords/stored-keys.ts",
      "API keys of the store that a process remembers for 2 s",
      "the store is asked again",
    ],
    ["MAX_KEPT_BYTES", "backends/ai/cache/kept-answer.ts", "an answer in the response cache", "it is not kept"],
    ["MAX_CACHE_MS", "backends/ai/models/quota-schema.ts", "`cache.ttl`", "the configuration is rejected"],
    ["MAX_VERDICT_BYTES", "llm/guards/guard-webhook.ts", "what a guard by webhook answers", "it counts as failed"],
    [
      "MAX_PER_MINUTE",
      "backends/ai/models/quota-schema.ts",
      "`perMinute` of a deployment",
      "the configuration is rejected",
    ],
    ["MAX_CATALOGUE_BYTES", "backends/ai/models/quotes.ts", "a file of prices", "the configuration is rejected"],
    ["MAX_BUDGETS", "policies/budgets/schema.ts", "entries of `budgets.limits`", "the configuration is rejected"],
    ["MAX_ALERTS", "policies/budgets/schema.ts", "percentages of `alertAt`", "the configuration is rejected"],
    ["MAX_COST", "llm/budgets/money.ts", "US dollars of a budget", "the configuration is rejected"],
    ["MAX_BUDGET_TOKENS", "llm/budgets/money.ts", "tokens of a budget", "the configuration is rejected"],
    [
      "MAX_WAITING",
      "llm/budgets/ledger.ts",
      "counters of budgets that wait for the store",
      "spending of further ones is lost, and logged",
    ],
    ["MAX_REMEMBERED", "llm/budgets/budget-alerts.ts", "alerts that a process remembers", "the store is asked again"],
    ["MAX_ANSWER_BYTES", "llm/budgets/budget-alerts.ts", "a webhook's answer to an alert", "it counts as failed"],
    [
      "MAX_LOOK_BYTES",
      "llm/budgets/stream-progress.ts",
      "what is read of a chunk to estimate a running stream",
      "the answer's end settles it",
    ],
    ["MAX_SHOWN", "llm/budgets/budget-views.ts", "keys of a budget in `/debug/budgets`", "only the count tells"],
    ["MAX_FOUND", "llm/budgets/budget-views.ts", "keys that `?key=` finds", "the rest is left out"],
    ["MAX_LOOK_MS", "llm/budgets/budget-views.ts", "how long a shared Redis is looked through", "the rest is left out"],
    ["MAX_AMOUNT", "llm/usage/token-count.ts", "what one answer debits", "the limit counts"],
    [
      "MAX_ANSWER_BYTES",
      "policies/rate-limit/rls-client.ts",
      "an answer of the rate limit service",
      "counts as no answer",
    ],
    [
      "MAX_RECONNECT_MS",
      "policies/rate-limit/rls-client.ts",
      "pause before connecting to the service again",
      "it grows no further",
    ],
    ["MAX_TIMEOUTS_IN_A_ROW", "policies/rate-limit/rls-client.ts", "timeouts in a row", "the connection is replaced"],
    ["MAX_SHOWN", "policies/rate-limit/local-limit.ts", "buckets in a dump", "the rest is counted"],
    ["MAX_OUTPUT_TOKENS", "llm/usage/output-maximum.ts", "output that a request may reserve", "the limit counts"],
    ["MAX_NUMBER_BYTES", "llm/usage/output-maximum.ts", "a number of tokens in a request", "it says nothing"],
    ["MAX_FOUND", "policies/rate-limit/local-limit.ts", "buckets that a search by key shows", "the emptiest are shown"],
  ],
  Identity: [
    ["MAX_TOKEN_BYTES", "identity/tokens/token.ts", "a token", "401 `invalid_token`"],
    [
      "MAX_CACHED_TOKENS",
      "identity/keys/token-verifier.ts",
      "verified tokens that are remembered",
      "the least recently used is verified again",
    ],
    ["MAX_KEYS_TRIED", "identity/keys/key-set.ts", "keys tried for a token without `kid`", "401 `invalid_token`"],
    ["MAX_KEY_SET_BYTES", "identity/keys/key-set.ts", "a key set", "it is rejected, the old one stays"],
    ["MAX_KEYS", "identity/keys/verification-key.ts", "keys of a set", "the rest is ignored, with a warning"],
    ["MAX_RSA_BITS", "identity/keys/verification-key.ts", "an RSA key", "it is ignored, with a warning"],
    ["MAX_TTL_MS", "identity/providers/freshness.ts", "time until keys are fetched again", "the limit counts"],
    ["MAX_STALE_MS", "identity/providers/freshness.ts", "age of keys while the provider is away", "503"],
    [
      "MAX_RETRY_MS",
      "identity/keys/remote-key-set.ts",
      "pause between two attempts to fetch keys",
      "it grows no further",
    ],
    ["MAX_BYTES", "identity/providers/discovery.ts", "a provider's metadata", "it is rejected"],
    ["LOGIN_MS", "identity/login/browser-login.ts", "time for a sign-in with the browser", "it must be begun again"],
    ["MAX_ANSWER_BYTES", "identity/login/browser-login.ts", "a token response at its end", "the sign-in fails"],
    ["MAX_RETURN_CHARS", "identity/login/browser-login.ts", "the address to come back to", "the sign-in ends at `/`"],
    ["MAX_SESSION_MS", "policies/oidc/policy.ts", "`oidc.sessionTimeout`", "the configuration is rejected"],
    [
      "MAX_BODY_BYTES",
      "backends/ui/backend.ts",
      "a call of an operator in the UI on a gateway",
      "413 `body_too_large`",
    ],
    [
      "REQUESTS_PER_MINUTE",
      "identity/login/login-limit.ts",
      "registration and token requests of a listener in a minute",
      "429 `rate_limited`",
    ],
    [
      "MAX_STATE_CHARS",
      "identity/login/client-callback.ts",
      "`state` of a login whose callback the gateway takes",
      "400",
    ],
    ["MAX_ADDRESS_CHARS", "identity/login/client-callback.ts", "its redirect URI", "400"],
    [
      "MAX_DOCUMENT_BYTES",
      "identity/login/client-metadata.ts",
      "a client id metadata document",
      "400 `invalid_client`",
    ],
    ["MAX_KEPT_DOCUMENTS", "identity/login/client-metadata.ts", "such documents that are kept", "they are read again"],
    ["MAX_LOGIN_BODY_BYTES", "identity/login/login-endpoints.ts", "a registration or token request", "413"],
    ["MAX_ANSWER_BYTES", "identity/login/login-endpoints.ts", "the provider's answer to it", "502"],
    ["MAX_DEPTH", "identity/login/registration.ts", "nesting of a registration", "400 `invalid_client_metadata`"],
    [
      "MAX_REDIRECT_URIS",
      "identity/login/registration.ts",
      "redirect URIs of a registration",
      "400 `invalid_redirect_uri`",
    ],
    ["MAX_WAITING", "identity/passwords/htpasswd.ts", "password checks that wait", "503 `overloaded`"],
    [
      "MAX_REMEMBERED",
      "identity/passwords/htpasswd.ts",
      "passwords that are remembered (as digests)",
      "the least recently used is computed again",
    ],
    ["MAX_COST", "identity/passwords/bcrypt.ts", "the cost of a password hash", "the configuration is rejected"],
    ["MAX_TEXT", "identity/access/access-rules.ts", "the explanation of a refusal", "cut"],
  ],
  Expressions: [
    ["MAX_SOURCE_BYTES", "cel/syntax/scan-source.ts", "an expression's source", "the configuration is rejected"],
    ["MAX_NESTING", "cel/syntax/scan-source.ts", "nested brackets", "the configuration is rejected"],
    ["MAX_NODES", "cel/analysis/analyze.ts", "nodes of an expression", "the configuration is rejected"],
    ["MAX_DEPTH", "cel/analysis/analyze.ts", "depth of an expression", "the configuration is rejected"],
    ["MAX_COST", "cel/functions/budget.ts", "work of one evaluation (0.1 µs each)", "the expression fails"],
    ["MAX_TEXT", "cel/functions/string-functions.ts", "a text that a function makes", "the expression fails"],
    ["MAX_JSON_TEXT", "cel/functions/encoding-functions.ts", "a text that is parsed as JSON", "the expression fails"],
    [
      "MAX_JSON_TOKENS",
      "cel/functions/encoding-functions.ts",
      "commas, colons and brackets of such a text",
      "the expression fails",
    ],
    [
      "MAX_COMPUTED_PATTERN",
      "cel/functions/regex.ts",
      "a pattern that is computed from a request",
      "the expression fails",
    ],
    ["MAX_STATES", "cel/functions/regex-automaton.ts", "states of a pattern's table", "the pattern is read without it"],
    ["MAX_OUTPUT_DEPTH", "cel/values/values.ts", "nesting of a result", "the expression fails"],
    ["MAX_OUTPUT_VALUES", "cel/values/values.ts", "values of a result", "the expression fails"],
    ["MAX_CLAUSES", "cel/explain.ts", "clauses of an explanation", "the outermost are kept"],
    ["MAX_VALUES", "cel/explain.ts", "values of an explanation", "the rest is left out"],
    ["MAX_SHOWN_CHARS", "config/compile/traced-expression.ts", "a value in a trace", "cut"],
  ],
  Configuration: [
    ["MAX_FILE_BYTES", "config/text/yaml-source.ts", "a configuration file", "the configuration is rejected"],
    ["MAX_SOURCE_FILES", "config/load/load.ts", "configuration files", "the configuration is rejected"],
    ["MAX_DEPTH", "config/text/too-deep.ts", "nesting of a file", "the configuration is rejected"],
    ["MAX_ALIASES", "config/text/resolve-document.ts", "aliases in a file", "the configuration is rejected"],
    ["MAX_PROBLEMS", "config/text/yaml-source.ts", "problems that are listed", "the rest is left out"],
    ["MAX_SYNTAX_PROBLEMS", "config/text/syntax-problems.ts", "syntax errors that are listed", "the rest is left out"],
    ["MAX_PLACES", "config/schema/field-hints.ts", "places that a hint names", "the rest is left out"],
    [
      "MAX_FILE_BYTES",
      "config/compile/config-file.ts",
      "a file that the configuration names",
      "the configuration is rejected",
    ],
    [
      "MAX_TARGETS",
      "config/resources/policy-targets.ts",
      "targets of a GatewayPolicy",
      "rejected; a protection closes its routes",
    ],
    ["MAX_ANCESTORS", "config/resources/status.ts", "ancestors in a status", "the rest is left out"],
    ["MAX_MESSAGE_BYTES", "config/resources/status.ts", "the message of a condition", "cut"],
  ],
  Kubernetes: [
    [
      "MAX_OUTPUT_CHARS",
      "lib/process/run-program.ts",
      "what a credential plugin or curl prints",
      "the rest is left out",
    ],
    ["MAX_ANSWER_BYTES", "kubernetes/client/api-client.ts", "an answer of the API server", "the list is tried again"],
    ["MAX_LINE_BYTES", "kubernetes/client/api-client.ts", "one event of a watch", "the watch begins again"],
    ["MAX_PAUSE_MS", "kubernetes/cache/kind-watch.ts", "the pause before a watch is tried again", "it no longer grows"],
    [
      "MAX_PAUSE_MS",
      "kubernetes/follow/follow-controller.ts",
      "the pause before a data plane asks its controller again",
      "it no longer grows",
    ],
    ["MAX_STREAMS", "kubernetes/serve/snapshot-server.ts", "data planes of one controller", "503, they try again"],
    ["MAX_ACK_BYTES", "kubernetes/serve/snapshot-server.ts", "the answer of a data plane", "503"],
    [
      "MAX_BEHIND_BYTES",
      "kubernetes/serve/snapshot-server.ts",
      "what a data plane has not read yet",
      "it is disconnected and comes again",
    ],
    ["MAX_KNOWN", "kubernetes/serve/token-reviews.ts", "tokens whose verdict is remembered", "all are reviewed again"],
    [
      "MAX_SNAPSHOT_BYTES",
      "kubernetes/follow/follow-controller.ts",
      "a snapshot",
      "rejected; the one before is served",
    ],
  ],
  "Trace, logs and metrics": [
    [
      "MAX_LINES",
      "lib/log/unexpected-errors.ts",
      "log lines of unexpected errors in 10 s",
      "counted and folded into one line",
    ],
    ["MAX_MESSAGE_CHARS", "lib/log/unexpected-errors.ts", "the message of an unexpected error", "cut"],
    ["MAX_STACK_LINES", "lib/log/unexpected-errors.ts", "its stack", "cut"],
    ["MAX_WATCHERS", "trace/hub.ts", "open traces", "429"],
    ["MAX_EVENTS", "trace/kept-traces.ts", "events of a kept trace", "expressions are left out"],
    ["MAX_CAPTURED_BYTES", "pipeline/records/body-capture.ts", "a body in a trace", "cut"],
    [
      "RECENT_REQUESTS",
      "pipeline/records/recent-requests.ts",
      "finished requests that are remembered",
      "the oldest is dropped",
    ],
    ["MAX_FOUND", "pipeline/records/older-requests.ts", "older requests with one id", "the oldest are left out"],
    ["MAX_SERIES", "lib/log/metrics.ts", "series of a metric", "one series takes the rest"],
    ["MAX_KNOWN", "pipeline/records/request-metrics.ts", "series that are kept at hand", "slower, still counted"],
    ["MAX_BUFFERED_CHARS", "lib/log/log-output.ts", "log lines that wait for their reader", "dropped and counted"],
    ["MAX_FILTER_CHARS", "lib/log/log-filter.ts", "a log filter", "400"],
  ],
  Store: [
    [
      "MAX_INSIDE_BYTES",
      "mcp/sessions/session-id.ts",
      "`initialize` parameters inside of a session id",
      "kept in the store",
    ],
    ["MAX_PARAMS_BYTES", "mcp/sessions/session-id.ts", "`initialize` parameters, unpacked", "kept in the store"],
    [
      "MAX_CARRIED_CHARS",
      "mcp/sessions/carried-answers.ts",
      "a client's answer that another replica asked for",
      "dropped, with a warning",
    ],
    ["MAX_WRITES", "mcp/sessions/carried-answers.ts", "such answers that are being written", "dropped, with a warning"],
    [
      "MAX_TOLD_CHARS",
      "mcp/replicas/session-peers.ts",
      "a client's message that other replicas are told",
      "they are not told",
    ],
    ["MAX_SENDS", "mcp/replicas/replica-bus.ts", "messages on their way to other replicas", "dropped, with a warning"],
    [
      "MAX_RELAYED_CHARS",
      "mcp/replicas/turn-relay.ts",
      "an answer that another replica's client waits for",
      "an error that says so",
    ],
    [
      "MAX_REMEMBERED",
      "mcp/eras/legacy-upstream.ts",
      "subscriptions of a session at one server",
      "not made again after a restart of the server",
    ],
    [
      "MAX_REMEMBERED_CHARS",
      "mcp/eras/legacy-upstream.ts",
      "the parameters of one of them",
      "not made again after a restart of the server",
    ],
    [
      "MAX_KEPT_SUBSCRIPTIONS",
      "mcp/replicas/session-settings.ts",
      "subscriptions kept with a session",
      "not set again in another process",
    ],
    [
      "MAX_KEPT_URI_CHARS",
      "mcp/replicas/session-settings.ts",
      "the name of such a resource",
      "not set again in another process",
    ],
    ["MAX_LEVEL_CHARS", "mcp/replicas/session-settings.ts", "a log level", "not set again in another process"],
    [
      "MAX_ID_CHARS",
      "mcp/streams/event-log.ts",
      "the id of a request that is inside of its events' ids",
      "left out: a lost answer is not told",
    ],
    [
      "MAX_UNHEARD",
      "mcp/streams/session-streams.ts",
      "events that wait for a client to listen at any replica",
      "the oldest are forgotten",
    ],
    ["MAX_UNHEARD_CHARS", "mcp/streams/session-streams.ts", "all of them together", "the oldest are forgotten"],
    ["MAX_MESSAGE_BYTES", "lib/store/store.ts", "a message to other replicas", "not sent, with a warning"],
    ["MAX_KEY_BYTES", "lib/store/store.ts", "a key", "the operation is rejected"],
    ["MAX_VALUE_BYTES", "lib/store/store.ts", "a value", "the operation is rejected"],
    ["MAX_ENTRIES", "lib/store/table.ts", "keys in memory or in a folder", "new keys are rejected until others expire"],
    [
      "MAX_WAITING_BYTES",
      "lib/store/folder-store.ts",
      "changes that wait for a slow disk",
      "further changes are rejected",
    ],
  ],
  "Admin interface and UI": [
    ["MAX_CONNECTIONS", "admin/server/server.ts", "connections", "further ones are closed"],
    ["MAX_BODY_BYTES", "admin/server/server.ts", "a request body", "413"],
    ["MAX_BUFFERED_BYTES", "admin/server/event-stream.ts", "events that wait for their reader", "the stream is ended"],
    ["MAX_FOLLOWERS", "admin/endpoints/requests.ts", "open pages that follow requests", "429"],
    ["MAX_REQUESTS", "admin/endpoints/tasks.ts", "requests in an answer", "the oldest are listed, all are counted"],
    ["MAX_IDS", "admin/ui/matching.ts", "requests that one filter call looks at", "400"],
    ["MAX_BUFFERED_BYTES", "admin/ui/call.ts", "an answer that the page reads slowly", "the backend waits"],
    ["MAX_BYTES", "admin/ui/token.ts", "an answer of the identity provider", "502"],
  ],
};

/** Constants that bound nothing that comes from outside: timers' own limits, the demo server, counters that wrap. */
const NOT_LISTED = new Set([
  "lib/process/clock.ts MAX_DELAY_MS",
  "lib/http/websocket-frames.ts MAX_HEADER_BYTES",
  "demo/mcp-server.ts MAX_SLOW_MS",
  "cel/functions/regex.ts MAX_GENERATION",
]);

/** The page, and what is wrong with the table. */
export function limitsPage(root, note, defaultOf) {
  const lines = [
    "# Limits",
    "",
    note,
    "",
    "Every queue, buffer, table and depth has a bound. Most are fixed; those with a setting say which. What is not listed passes",
    "through as a stream, with back-pressure. [Errors](errors.md) explains the codes.",
    "",
  ];
  for (const [title, rows] of Object.entries(LIMITS)) {
    lines.push(`## ${title}`, "", "| What | Limit | Setting | Beyond it |", "|---|---|---|---|");
    for (const row of rows) {
      const [name, ...rest] = row;
      const isSetting = rest.length === 2;
      const [what, beyond] = rest.slice(-2);
      const shown = isSetting ? withUnit(name, defaultOf(name)) : withUnit(name, constantIn(root, rest[0], name));
      lines.push(`| ${what} | ${shown} | ${isSetting ? `\`${name}\`` : ""} | ${beyond} |`);
    }
    lines.push("");
  }
  return `${lines.join("\n").trimEnd()}\n`;
}

/** Constants named as limits that no row tells about. */
export function unlistedLimits(root) {
  const listed = new Set(Object.values(LIMITS).flatMap((rows) => rows.map(([name, file]) => `${file} ${name}`)));
  const source = join(root, "src");
  return readdirSync(source, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && /(?<!\.test)\.ts$/.test(entry.name))
    .map((entry) => relative(source, join(entry.parentPath ?? entry.path, entry.name)))
    .filter((file) => !file.startsWith("cli/"))
    .flatMap((file) =>
      [...readFileSync(join(source, file), "utf8").matchAll(/^(?:export )?const (MAX_[A-Z_]+) = /gm)].map(
        ([, name]) => `${file} ${name}`,
      ),
    )
    .filter((one) => !listed.has(one) && !NOT_LISTED.has(one));
}

/** The number behind a constant or a member, which must be plain arithmetic. */
function constantIn(root, file, name) {
  const text = readFileSync(join(root, "src", file), "utf8");
  const found = new RegExp(`(?:^(?:export )?const ${name} = |^ {2}${name}: )([\\d_.* ]+)[;,]`, "m").exec(text);
  if (!found) throw new Error(`scripts/limits.mjs: ${name} is not a number in src/${file}`);
  return found[1]
    .replaceAll("_", "")
    .split("*")
    .reduce((product, factor) => product * Number(factor), 1);
}

/** By the unit at the end of the name: `2 MiB`, `10 s`, `65,536`. */
function withUnit(name, value) {
  if (typeof value === "string") return value;
  if (/bytes$/i.test(name))
    return value % 2 ** 20 === 0 ? `${value / 2 ** 20} MiB` : value % 1024 === 0 ? `${value / 1024} KiB` : `${value} B`;
  if (/(?:_MS|Ms)$/.test(name))
    return value >= 3_600_000
      ? `${value / 3_600_000} h`
      : value >= 60_000
        ? `${value / 60_000} min`
        : `${value / 1000} s`;
  if (value < 1) return `${value * 100} %`;
  const grouped = value.toLocaleString("en-US");
  return /(?:CHARS|TEXT|PATTERN|LENGTH)$/.test(name)
    ? `${grouped} characters`
    : /BITS$/.test(name)
      ? `${grouped} bits`
      : grouped;
}
