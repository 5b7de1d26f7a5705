/**
 * Faults to put into the gateway, one at a time, to find out whether the tests of inputs and of the promises in
 * SECURITY.md find them. Each is a mistake that a later change could make: in `file`, `replace` takes the place of
 * `find`, which must occur once. `tests` are the paths of the tests that could find it. `npm run inputs -- --faults` runs
 * them (`scripts/input-faults.mjs`). The classes are:
 *
 * - `missing check`: a check is skipped in one path
 * - `limit`: a limit is removed or wrong
 * - `second reader`: a value is read in another way than the checked one
 * - `work`: the work is no longer linear, or no longer in slices
 * - `memory account`: memory is not charged, or not released
 * - `output`: an output bypasses the redactor or the escaping
 * - `partial protection`: a protection depends on the kind of endpoint, method, policy, or header
 *
 * The faults were chosen by someone who took no part in writing the tests, from the sources and the documentation. The
 * tests were not read, except that parts of some test files in `src/json/` and `src/pipeline/listen/http2/` were seen by
 * mistake. No fault is in these two folders.
 */
export const FAULTS = [
  {
    name: "a cached token is accepted without a check of its claims",
    class: "missing check",
    effect:
      "A client can use an expired token as long as it is in the cache, and a token for one route on another route with another audience and the same keys.",
    file: "src/identity/keys/token-verifier.ts",
    tests: [
      "src/identity/keys/",
      "src/identity/tokens/",
      "src/policies/jwt-auth/",
      "test/scenario/identity-",
      "test/scenario/threats-identity",
    ],
    find: "    if (known) return judged(known, rules);\n",
    replace: "    if (known) return known;\n",
  },
  {
    name: "a browser login accepts an ID token for several clients that does not name this one",
    class: "missing check",
    effect:
      "A user can sign in with an ID token that lists the gateway as one of several audiences and was issued to another client, because a missing `azp` is not rejected.",
    file: "src/identity/login/browser-login.ts",
    tests: [
      "src/identity/login/",
      "src/identity/oauth/",
      "src/policies/oidc/",
      "test/scenario/browser-login",
      "test/scenario/identity-",
      "test/scenario/threats-identity",
    ],
    find: `    const isForSeveral = Array.isArray(claims.aud) && claims.aud.length > 1;
    if (claims.azp === undefined ? isForSeveral : claims.azp !== clientId)
`,
    replace: "    if (claims.azp !== undefined && claims.azp !== clientId)\n",
  },
  {
    name: "the login at an MCP server can be finished in a browser that has no cookie of it",
    class: "missing check",
    effect:
      "An attacker starts a login and sends the redirect to a victim. The account that the victim connects is stored for the attacker.",
    file: "src/mcp/logins/server-login.ts",
    tests: ["src/mcp/logins/", "test/scenario/mcp-login", "test/scenario/tenants-logins", "test/scenario/threats-mcp"],
    find: `    if (!isStartedBy(found.value, secretsFor(found.login))) return "other browser";
`,
    replace: `    const secrets = secretsFor(found.login);
    if (secrets.length > 0 && !isStartedBy(found.value, secrets)) return "other browser";
`,
  },
  {
    name: "one permitted address of a name permits all its addresses",
    class: "missing check",
    effect:
      "A client of the forward proxy, a remote server, or a document of a cluster can name a host with a public and a private address, and the gateway connects to the private one.",
    file: "src/http/egress-guard.ts",
    tests: [
      "src/http/egress-",
      "test/scenario/forward-proxy",
      "test/scenario/kubernetes-confined",
      "test/scenario/threats-",
    ],
    find: "        const fitting = all.filter(({ address }) => this.permits(address, name));\n",
    replace: "        const fitting = all.some(({ address }) => this.permits(address, name)) ? all : [];\n",
  },
  {
    name: "a document of a cluster can name a Service of type ExternalName",
    class: "missing check",
    effect:
      "A tenant creates a Service that is an alias of an internal host name, and its backend reaches private addresses outside of the networks that the operator allows.",
    file: "src/config/documents/confined-addresses.ts",
    tests: ["src/config/documents/", "src/kubernetes/", "test/scenario/kubernetes-"],
    find: '    return found.type === "ExternalName" ? `${shown} is of type ExternalName, which is not supported` : undefined;\n',
    replace: "    return undefined;\n",
  },

  {
    name: "wrong passwords of unknown users are not counted",
    class: "limit",
    effect:
      "A client can try any number of user names without a 429. With a known name it gets one, which shows which users exist.",
    file: "src/policies/basic-auth/policy.ts",
    tests: [
      "src/policies/basic-auth/",
      "src/identity/passwords/",
      "test/scenario/failed-credentials",
      "test/scenario/threats-identity",
    ],
    find: '        if (mode !== "permissive") failureLimit.failed(exchange.source, username);\n',
    replace: `        if (mode !== "permissive" && passwords.entryOf(username) !== undefined)
          failureLimit.failed(exchange.source, username);
`,
  },
  {
    name: "error responses of an MCP server have no size limit",
    class: "limit",
    effect:
      "An MCP server or an HTTP API responds with status 500 and an endless body, and the gateway keeps all of it in memory.",
    file: "src/mcp/transports/remote-server.ts",
    tests: [
      "src/mcp/transports/",
      "src/mcp/remote",
      "src/mcp/message-sizes",
      "test/scenario/mcp-failures",
      "test/scenario/mcp-openapi",
      "test/scenario/mcp-server-floods",
      "test/scenario/memory-",
      "test/scenario/threats-mcp",
    ],
    find: "        if (this.#body.bytes > this.#maxBytes) throw new BodyTooLarge(this.#maxBytes);\n",
    replace:
      "        if (this.#status < 400 && this.#body.bytes > this.#maxBytes) throw new BodyTooLarge(this.#maxBytes);\n",
  },
  {
    name: "loops over maps are free in expressions",
    class: "limit",
    effect:
      "A client sends a JSON object with many members to a route whose rule loops over it, possibly in nested loops, and the evaluation blocks the event loop for more than 50 ms.",
    file: "src/cel/functions/budget.ts",
    tests: ["src/cel/", "test/inputs/", "test/scenario/faults-loop"],
    find: "  const rounds = isCelList(range) || isCelMap(range) ? range.size : 0;\n",
    replace: "  const rounds = isCelList(range) ? range.size : 0;\n",
  },
  {
    name: "listed values of Redis have no size limit",
    class: "limit",
    effect:
      "A value of any size that another program stores under the prefix is read when API keys or connected accounts are listed, although a single read rejects it.",
    file: "src/store/redis-store.ts",
    tests: [
      "src/store/",
      "test/inputs/",
      "test/scenario/store-",
      "test/scenario/api-keys-stored",
      "test/scenario/threats-",
    ],
    find: "        const value = checkedValue(values[i]);\n",
    replace: "        const value = values[i] ?? undefined;\n",
  },

  {
    name: "header values of HTTP/1.1 are trimmed of more than spaces and tabs",
    class: "second reader",
    effect:
      "A client sends `Transfer-Encoding` with a vertical tab or the byte 0xA0 before `chunked`. The gateway reads a chunked body, and another server may read another length, so that a second request can be hidden in the body.",
    file: "src/http/h1/message-framing.ts",
    tests: [
      "src/http/h1/",
      "test/request-parsers",
      "test/fuzz/",
      "test/scenario/connection-scripts",
      "test/scenario/edge-",
      "test/scenario/threats-listener",
    ],
    find: "  return text.slice(start, end);\n",
    replace: "  return text.slice(start, end).trim();\n",
  },
  {
    name: "an API key is found under an encoded parameter name",
    class: "second reader",
    effect:
      "A client sends the key as `%6bey=…` for a policy that reads the parameter `key`. The request is admitted, and the backend receives the key, because it is removed by its plain name only.",
    file: "src/identity/access/credential-location.ts",
    tests: [
      "src/identity/access/",
      "src/policies/api-key/",
      "test/scenario/api-keys",
      "test/scenario/withheld-credentials",
      "test/scenario/threats-identity",
    ],
    find: '  const values = request.query.split("&").filter((part) => part === name || part.startsWith(`${name}=`));\n',
    replace: '  const values = request.query.split("&").filter((part) => readForm(QUERY, part).has(name));\n',
  },
  {
    name: "further model names of a request are read without their JSON escapes",
    class: "second reader",
    effect:
      "A client lists a fallback model with an escape, such as `gpt-\\u0034`. A rule that denies the model does not match, and the provider reads the real name.",
    file: "src/llm/request/named-models.ts",
    tests: [
      "src/llm/request/",
      "src/llm/models/",
      "test/inputs/",
      "test/fuzz/",
      "test/scenario/llm-ambiguous-bodies",
      "test/scenario/llm-listed-models",
      "test/scenario/llm-named-models",
      "test/scenario/threats-llm",
    ],
    find: '        found.add(decodeString(bytes.toString("utf8", i + 1, end)));\n',
    replace: '        found.add(bytes.toString("utf8", i + 1, end));\n',
  },
  {
    name: "names of OpenAPI arguments are compared without Unicode normalization",
    class: "second reader",
    effect:
      "A client adds a field whose name has full-width letters, or a letter that is equal only in uppercase. A server that normalizes names reads it as the parameter that the gateway or another argument owns.",
    file: "src/mcp/openapi/parameters.ts",
    tests: [
      "src/mcp/openapi/",
      "test/scenario/mcp-argument-guard",
      "test/scenario/mcp-openapi",
      "test/scenario/mcp-tool-rules",
      "test/scenario/openapi-differential",
      "test/scenario/threats-mcp",
    ],
    find: '  return name.normalize("NFKC").toUpperCase().toLowerCase().replace(/[.\\s]/g, "_");\n',
    replace: '  return name.toLowerCase().replace(/[.\\s]/g, "_");\n',
  },

  {
    name: "each event of a guarded stream visits all its channels",
    class: "work",
    effect:
      "A provider opens a thousand choices or tool calls and sends many small events, and the work for a stream grows with the product of both.",
    file: "src/llm/guards/stream-guard.ts",
    tests: [
      "src/llm/guards/",
      "test/inputs/",
      "test/scenario/faults-loop-llm",
      "test/scenario/llm-guard-",
      "test/scenario/llm-safety",
    ],
    find: "      const before = isEnded === undefined ? [] : yield* release(isEnded);\n",
    replace: "      const before = yield* release(isEnded ?? (() => false));\n",
  },
  {
    name: "the store looks for expired entries in one piece",
    class: "work",
    effect:
      "With hundreds of thousands of entries, each sweep of the memory or folder store blocks the event loop, and all requests wait.",
    file: "src/store/table.ts",
    tests: ["src/store/", "test/inputs/", "test/scenario/faults-loop", "test/scenario/store-"],
    find: "    for (let i = 0; i < ENTRIES_PER_SWEEP; i++) {\n",
    replace: "    for (let i = 0; i < Math.max(ENTRIES_PER_SWEEP, this.#rows.size); i++) {\n",
  },
  {
    name: "a body of unknown length is copied for each chunk",
    class: "work",
    effect:
      "A client uploads a chunked body of many MiB, and the gateway copies all received bytes for each read, so that the work grows with the square of the size.",
    file: "src/http/body.ts",
    tests: [
      "src/http/",
      "test/inputs/",
      "test/scenario/faults-loop",
      "test/scenario/http-bodies",
      "test/scenario/http-large-bodies",
      "test/scenario/limits-bodies",
    ],
    find: "      const grown = Buffer.allocUnsafeSlow(Math.max(capacity, this.#bytes, 2 * start));\n",
    replace: "      const grown = Buffer.allocUnsafeSlow(Math.max(capacity, this.#bytes));\n",
  },
  {
    name: "small HTTP/2 frames are joined anew for each frame",
    class: "work",
    effect:
      "A client or backend sends a body in frames of one byte, and the gateway copies all held bytes for each of them. The work is quadratic up to the size of the window while the receiver does not read.",
    file: "src/http/h2/frame-reader.ts",
    tests: ["src/http/h2/", "src/pipeline/listen/http2/", "test/inputs/", "test/scenario/http2"],
    find: `      if (this.#joined === undefined) {
        this.#joined = new JoinedBytes();
        this.#joined.add(this.#held);
      }
`,
    replace: `      this.#joined = new JoinedBytes();
      this.#joined.add(this.#held);
`,
  },

  {
    name: "large answers to an MCP server stay charged after they were sent",
    class: "memory account",
    effect:
      "After some large answers to requests of servers, such as sampling results, the message pool is full. Later large answers and messages of all servers are dropped or delayed until the gateway restarts.",
    file: "src/mcp/transports/one-way-queue.ts",
    tests: [
      "src/mcp/transports/",
      "src/mcp/server-side/",
      "test/scenario/mcp-server-floods",
      "test/scenario/memory-",
      "test/scenario/threats-mcp",
    ],
    find: "    queued.freeMemory?.();\n",
    replace: "",
  },
  {
    name: "the queue of a slow MCP client stays charged when it is emptied",
    class: "memory account",
    effect:
      "Each time a client of a session reads slowly or disconnects, its account grows, until its session accepts no more events and the client can open no further session.",
    file: "src/mcp/session/event-stream.ts",
    tests: [
      "src/mcp/session/",
      "src/mcp/stream",
      "test/scenario/mcp-leaks",
      "test/scenario/mcp-resume",
      "test/scenario/mcp-stateless",
      "test/scenario/mcp-streamable-http",
      "test/scenario/memory-",
    ],
    find: "    this.#owner.account.shrink(this.#queuedBytes);\n",
    replace: "",
  },
  {
    name: "bytes that wait in a closed tunnel stay charged",
    class: "memory account",
    effect:
      "Clients that do not read and close their WebSockets or CONNECT tunnels fill the pool of waiting bytes. The gateway then cuts streams of this client, and at last those of others.",
    file: "src/pipeline/listen/tunnel.ts",
    tests: ["src/pipeline/listen/", "test/scenario/http-websocket", "test/scenario/memory-", "test/scenario/tunnels"],
    find: "      this.#account.close();\n",
    replace: "",
  },
  {
    name: "spans that wait for the collector are not counted in bytes",
    class: "memory account",
    effect:
      "While the collector does not respond, requests with large span attributes or log records make the export queues grow far beyond 32 MiB.",
    file: "src/record/telemetry/otlp-export.ts",
    tests: ["src/record/telemetry/", "test/scenario/memory-", "test/scenario/telemetry-"],
    find: "      if (isClosed || waiting.length >= limits.items || sendingBytes + waitingBytes + bytes > limits.bytes) {\n",
    replace: "      if (isClosed || waiting.length >= limits.items || bytes > limits.bytes) {\n",
  },

  {
    name: "the reason of a failure is stored in the history without redaction",
    class: "output",
    effect:
      "An error message that quotes a secret of the configuration is in the history database in plain text, where everyone who reads the history sees it.",
    file: "src/record/history/row-batch.ts",
    tests: [
      "src/record/history/",
      "src/record/",
      "test/redacted-fields",
      "test/scenario/history",
      "test/scenario/redact",
      "test/scenario/secrets",
    ],
    find: '  "model",\n  "message",\n];\n',
    replace: '  "model",\n];\n',
  },
  {
    name: "errors in spans can quote credentials of the request",
    class: "output",
    effect:
      "An error message that repeats the token, key, or cookie of a client is exported to the collector with the credential in it.",
    file: "src/record/telemetry/request-spans.ts",
    tests: [
      "src/record/telemetry/",
      "src/record/",
      "test/redacted-fields",
      "test/scenario/redact",
      "test/scenario/secrets",
      "test/scenario/telemetry-",
    ],
    find: "    redaction.scrub(text, exchange.arrived.headers.pairs, exchange.credentials.secrets).slice(0, MESSAGE_CHARS);\n",
    replace: "    redaction.text(text).slice(0, MESSAGE_CHARS);\n",
  },
  {
    name: "a client can turn off the redaction of its trace",
    class: "output",
    effect:
      "A request with the word `bodySnapshot` in its path or in a header has trace events in which the admin interface shows secrets of the configuration.",
    file: "src/admin/server/endpoint.ts",
    tests: [
      "src/admin/server/",
      "src/admin/endpoints/",
      "test/scenario/admin-",
      "test/scenario/redact",
      "test/scenario/secrets",
      "test/scenario/trace-",
    ],
    find: "BODY_SNAPSHOT.test(chunk)",
    replace: `chunk.includes("bodySnapshot")`,
  },
  {
    name: "a credential under an encoded parameter name is not redacted",
    class: "output",
    effect:
      "A client sends its token as `%74oken=…`, and traces, records of requests, spans, and fields of the access log show it.",
    file: "src/record/trace/redact.ts",
    tests: [
      "src/record/trace/",
      "test/redacted-fields",
      "test/scenario/redact",
      "test/scenario/secrets",
      "test/scenario/trace-secrets",
    ],
    find: "      const name = decodeSafely(written);\n",
    replace: "      const name = written;\n",
  },

  {
    name: "an override header that another route names is passed on",
    class: "partial protection",
    effect:
      "If any route of a listener names `x-original-url` or `x-http-method-override`, a client can send it to protected routes that name none, and their backends may serve another path or method than the rules allowed.",
    file: "src/pipeline/phases/pipeline.ts",
    tests: [
      "src/pipeline/phases/",
      "src/pipeline/route/",
      "test/scenario/policies-protected",
      "test/scenario/request-methods",
      "test/scenario/threats-listener",
    ],
    find: "    if (this.#served.listener.namedOverrides?.size) this.#removeOverrides(route.namedOverrides);\n",
    replace: "    if (route.namedOverrides.size > 0) this.#removeOverrides(route.namedOverrides);\n",
  },
  {
    name: "prompt guards do not run for requests of opaque dialects",
    class: "partial protection",
    effect:
      "A client sends a text that a guard must mask or reject to an endpoint for images, speech, moderation, or plain completions, and the provider receives it.",
    file: "src/llm/calls/apply-policies.ts",
    tests: [
      "src/policies/ai/",
      "src/llm/guards/",
      "test/scenario/llm-guard-",
      "test/scenario/llm-safety",
      "test/scenario/threats-llm",
    ],
    find: `  const applicable = llm.dialect.format === "opaque" ? { requestGuards: rules.requestGuards } : rules;
`,
    replace: `  const applicable: PromptRules = llm.dialect.format === "opaque" ? {} : rules;
`,
  },
  {
    name: "a forwarding header turns off the check of the host over loopback",
    class: "partial protection",
    effect:
      "A web page that uses DNS rebinding adds `x-forwarded-for` to its requests and uses an unprotected MCP route on the user's machine.",
    file: "src/mcp/client-side/origin-guard.ts",
    tests: [
      "src/mcp/client-side/",
      "test/scenario/loopback-clients",
      "test/scenario/mcp-streamable-http",
      "test/scenario/threats-mcp",
      "test/scenario/threats-listener",
    ],
    find: "  if (isLoopbackPeer(source) && !isAllowedHost(request.host, trusted)) {\n",
    replace:
      "  if (source.isForwarded !== true && isLoopbackPeer(source) && !isAllowedHost(request.host, trusted)) {\n",
  },
  {
    name: "a route whose only protection is a policy of a model does not count as protected",
    class: "partial protection",
    effect:
      "A client can send ambiguous paths and override headers to such a route, and its backend may read another path or method than the gateway.",
    file: "src/config/compile/compile.ts",
    tests: [
      "src/config/compile/",
      "test/scenario/llm-model-policies",
      "test/scenario/policies-protected",
      "test/scenario/threats-llm",
    ],
    find: "        [...placed, ...gatewayPolicies, ...route.backends.flatMap(policiesOf)],\n",
    replace: "        [...placed, ...gatewayPolicies, ...route.backends.flatMap(({ policies }) => policies)],\n",
  },
  {
    name: "a listener that requires the PROXY protocol accepts its header from any peer",
    class: "partial protection",
    effect:
      "A client that reaches the listener directly chooses its own address, and so passes rules and limits that depend on the address.",
    file: "src/pipeline/listen/proxied-connections.ts",
    tests: [
      "src/pipeline/listen/",
      "src/http/proxy-protocol",
      "test/scenario/client-address",
      "test/scenario/threats-listener",
    ],
    find: `      else if (env.isTrustedPeer(socket.remoteAddress ?? "")) read(socket, protocol, next);
      else if (protocol.isRequired) reject(socket, "the peer is not in config.trustedProxies");
      else next();
`,
    replace: `      else if (protocol.isRequired || env.isTrustedPeer(socket.remoteAddress ?? "")) read(socket, protocol, next);
      else next();
`,
  },
];
