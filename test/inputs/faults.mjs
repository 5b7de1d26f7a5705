/**
 * Faults to put into the gateway, one at a time, to find out whether the tests of inputs and of the promises in
 * SECURITY.md find them. Each is a mistake that a later change could make: in `file`, `replace` takes the place of
 * `find`, which must occur once. `tests` are the paths of the tests that could find it. `npm run inputs -- --faults` runs
 * them, and `npm run inputs -- --faults "set 2"` those of one set (`scripts/input-faults.mjs`). The classes are:
 *
 * - `missing check`: a check is skipped in one path
 * - `limit`: a limit is removed or wrong
 * - `second reader`: a value is read in another way than the checked one
 * - `work`: the work is no longer linear, or no longer in slices
 * - `memory account`: memory is not charged, or not released
 * - `output`: an output bypasses the redactor or the escaping
 * - `partial protection`: a protection depends on the kind of endpoint, method, policy, or header
 *
 * All sets were chosen from the sources and the documentation, by someone who took no part in writing the tests:
 *
 * - Set 1: the tests were not read, except that parts of some test files in `src/json/` and `src/pipeline/listen/http2/`
 *   were seen by mistake. The set has no fault in these two folders.
 * - Set 2: chosen by another person, to avoid the faults of set 1, and committed before its first run. The tests were not
 *   read, except that test files in `src/identity/passwords/` were seen by mistake. The set has no fault in this folder.
 * - Set 3: chosen by another person, to avoid the faults of both sets, and committed before its first run. The tests were
 *   not read.
 */
export const FAULTS = [
  {
    set: 1,
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
    set: 1,
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
    set: 1,
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
    set: 1,
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
    set: 1,
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
    set: 1,
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
    set: 1,
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
    set: 1,
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
    set: 1,
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
    set: 1,
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
    set: 1,
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
    set: 1,
    name: "further model names of a request are read without their JSON escapes",
    class: "second reader",
    effect:
      "A client lists a fallback model with an escape, such as `gpt-\\u0034`. A rule that denies the model does not match, and the provider reads the real name.",
    file: "src/llm/request/read-request.ts",
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
    set: 1,
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
    set: 1,
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
    set: 1,
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
    set: 1,
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
    set: 1,
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
    set: 1,
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
    set: 1,
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
    set: 1,
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
    set: 1,
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
    set: 1,
    name: "the reason of a failure is stored in the history without redaction",
    class: "output",
    effect:
      "An error message that quotes a secret of the configuration is in the history database in plain text, where everyone who reads the history sees it.",
    file: "src/record/history/history-row.ts",
    tests: [
      "src/record/history/",
      "src/record/",
      "test/redacted-fields",
      "test/scenario/history",
      "test/scenario/redact",
      "test/scenario/secrets",
    ],
    find: '  message: "client text",\n',
    replace: '  message: "text",\n',
  },
  {
    set: 1,
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
    find: "  const scrub = (text: string): string => redaction.scrub(text, pairs, secrets);\n",
    replace: "  const scrub = (text: string): string => redaction.text(text);\n",
  },
  {
    set: 1,
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
    set: 1,
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
    find: "isSecret(decodeSafely(written)) ?",
    replace: "isSecret(written) ?",
  },

  {
    set: 1,
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
    set: 1,
    name: "prompt guards do not run for requests of opaque dialects",
    class: "partial protection",
    effect:
      "A client sends a text that a guard must mask or reject to an endpoint for images, speech, moderation, or plain completions, and the provider receives it.",
    file: "src/llm/model-call.ts",
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
    set: 1,
    name: "a forwarding header turns off the check of the host over loopback",
    class: "partial protection",
    effect:
      "A web page that uses DNS rebinding adds `x-forwarded-for` to its requests and uses an unprotected MCP route on the user's machine.",
    file: "src/mcp/client-side/http-request.ts",
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
    set: 1,
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
    set: 1,
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

  {
    set: 2,
    name: "the controller accepts tokens for other audiences",
    class: "missing check",
    effect:
      "A program that received a token of the data plane's service account for another audience can use it at the controller, and reads the snapshot with the keys and Secrets of the Gateway.",
    file: "src/kubernetes/token-reviews.ts",
    tests: ["src/kubernetes/", "test/scenario/kubernetes-"],
    find: "    const isGood = status.authenticated === true && listOf(status.audiences).includes(TOKEN_AUDIENCE);\n",
    replace: "    const isGood = status.authenticated === true;\n",
  },
  {
    set: 2,
    name: "the end of a login does not check the address of the client again",
    class: "missing check",
    effect:
      "After an operator removed an address from `redirectUris`, logins that began before still send their authorization codes to it for an hour.",
    file: "src/identity/login/client-callback.ts",
    tests: [
      "src/identity/login/",
      "src/policies/mcp-authentication/",
      "test/scenario/identity-login",
      "test/scenario/tenants-logins",
      "test/scenario/threats-identity",
    ],
    find: "    if (!isAllowed(address) && !isOfDocument(client)) throw invalidRequest(NOT_ALLOWED);\n",
    replace: "",
  },
  {
    set: 2,
    name: "free fields of a form may have any name",
    class: "missing check",
    effect:
      "A client calls an OpenAPI tool with a field whose name contains quotes and line breaks, and the multipart body gets parts that no rule and no pinned argument saw.",
    file: "src/mcp/openapi/request.ts",
    tests: [
      "src/mcp/openapi/",
      "test/scenario/mcp-openapi",
      "test/scenario/mcp-tool-rules",
      "test/scenario/openapi-differential",
      "test/scenario/threats-mcp",
    ],
    find: "    else if (!body.isOpen || !FREE_NAME.test(name) || free.has(foldedName(name)))\n",
    replace: "    else if (!body.isOpen || free.has(foldedName(name)))\n",
  },
  {
    set: 2,
    name: "a wrong reference of a policy reaches targets in other namespaces",
    class: "missing check",
    effect:
      "A tenant writes a security policy that names a route or Gateway of another namespace, and the gateway closes that target.",
    file: "src/config/documents/policy-targets.ts",
    tests: [
      "src/config/documents/",
      "src/kubernetes/",
      "test/scenario/kubernetes-",
      "test/scenario/policies-scopes",
      "test/scenario/resources-invalid-policy",
      "test/scenario/tenants-",
    ],
    find: '  if (reference.namespace !== ownNamespace) return "a policy applies only to targets in its own namespace";\n',
    replace: "",
  },
  {
    set: 2,
    name: "a subscription may name the tasks of other clients",
    class: "missing check",
    effect:
      "A client that learns the ID of another client's MCP task subscribes to it and receives its status and results.",
    file: "src/mcp/aggregation/interceptors.ts",
    tests: [
      "src/mcp/aggregation/",
      "src/mcp/replicas/",
      "test/scenario/mcp-owners",
      "test/scenario/mcp-task-owners",
      "test/scenario/threats-mcp",
    ],
    find: "    if (method === LISTEN) call.request = ownSubscription(request, isOwn);\n    else if (method === LIST)",
    replace: "    if (method === LIST)",
  },

  {
    set: 2,
    name: "registrations and token requests share one limit",
    class: "limit",
    effect:
      "Registrations, which need no login, use up the requests of the listener, so that users of all clients cannot renew their tokens for the rest of the minute.",
    file: "src/identity/login/login-limit.ts",
    tests: [
      "src/identity/login/",
      "src/policies/mcp-authentication/",
      "test/scenario/login-limits",
      "test/scenario/mcp-login-relay",
      "test/scenario/threats-identity",
    ],
    find: "    ownedKey(env.owner, `login ${kind} ${JSON.stringify(counted)}`);\n",
    replace: "    ownedKey(env.owner, `login ${JSON.stringify(counted)}`);\n",
  },
  {
    set: 2,
    name: "connections are counted for each IPv6 address instead of each network",
    class: "limit",
    effect:
      "A client with an IPv6 network opens connections from many of its addresses and takes all connections of the listener.",
    file: "src/pipeline/listen/listener.ts",
    tests: [
      "src/pipeline/listen/",
      "test/scenario/client-address",
      "test/scenario/edge-connections",
      "test/scenario/faults-connections",
      "test/scenario/tcp-routes",
      "test/scenario/threats-listener",
    ],
    find: "      const address = addressKey(remoteAddress);\n",
    replace: "      const address = remoteAddress;\n",
  },
  {
    set: 2,
    name: "messages of a Bedrock stream have no size limit",
    class: "limit",
    effect:
      "A provider announces a message of up to 4 GiB and sends it, and the gateway keeps all of it in memory until it is complete.",
    file: "src/llm/usage/stream-events.ts",
    tests: [
      "src/llm/dialects/",
      "src/llm/usage/",
      "test/inputs/",
      "test/scenario/llm-upstream-faults",
      "test/scenario/memory-",
      "test/scenario/threats-llm",
    ],
    find: "        if (total > maxBytes) throw new Error(`an event stream message is larger than ${maxBytes} bytes`);\n",
    replace: "",
  },
  {
    set: 2,
    name: "computed lifetimes of verdicts have no upper bound",
    class: "limit",
    effect:
      "An authorization service returns a verdict with a distant expiry, and a permission that was revoked afterwards stays in effect for hours instead of five minutes.",
    file: "src/policies/ext-authz/policy.ts",
    tests: ["test/scenario/ext-authz"],
    find: "      return Math.min(ttlMs, MAX_CACHE_TTL_MS);\n",
    replace: "      return ttlMs;\n",
  },

  {
    set: 2,
    name: "names of JSON members are folded to lowercase only",
    class: "second reader",
    effect:
      "A client writes a member name with a letter such as `ſ`, whose uppercase form is `S`. The gateway reads another name, and a server that ignores case, as those in Go do, reads the one that a rule forbids.",
    file: "src/json/syntax.ts",
    tests: [
      "src/json/",
      "src/mcp/protocol/",
      "src/cel/",
      "src/llm/request/",
      "test/fuzz/",
      "test/scenario/llm-ambiguous-bodies",
      "test/scenario/mcp-argument-guard",
      "test/scenario/mcp-tool-rules",
      "test/scenario/threats-",
    ],
    find: "  return key.toUpperCase().toLowerCase();\n",
    replace: "  return key.toLowerCase();\n",
  },
  {
    set: 2,
    name: "rules read rounded numbers",
    class: "second reader",
    effect:
      "A client sends an integer beyond 2^53 as an argument. The rule compares the rounded value, and a server that reads integers exactly uses another one, for example the ID of a forbidden account.",
    file: "src/cel/values/members.ts",
    tests: [
      "src/cel/",
      "src/core/mcp-arguments",
      "src/mcp/",
      "src/policies/mcp-authorization/",
      "test/scenario/mcp-authorization",
      "test/scenario/mcp-tool-rules",
      "test/scenario/threats-mcp",
    ],
    find: '  if (typeof value === "number") requireExact(value);\n',
    replace: "",
  },
  {
    set: 2,
    name: "an encoded question mark does not end a path in any reading",
    class: "second reader",
    effect:
      "A client requests `/admin%3Fx` on a listener where only `/admin` is protected. A backend that decodes the path once more, and then splits off the query, serves `/admin`.",
    file: "src/http/request-path.ts",
    tests: [
      "src/http/request-path",
      "src/pipeline/route/",
      "test/fuzz/",
      "test/request-parsers",
      "test/scenario/canonical-path",
      "test/scenario/policies-protected",
      "test/scenario/threats-listener",
    ],
    find: '  const trimmed = beforeQuery(decoded).split("/").map(trimmedSegment).join("/");\n',
    replace: '  const trimmed = decoded.split("/").map(trimmedSegment).join("/");\n',
  },
  {
    set: 2,
    name: "the cost of an endpoint depends on the case of its path",
    class: "second reader",
    effect:
      "A client writes `/v1/Batches`. A hard budget expects a usage report, as for a call, and a host that ignores case runs the batch, which reports none.",
    file: "src/llm/request/dialect.ts",
    tests: [
      "src/llm/request/",
      "src/llm/budgets/",
      "src/policies/budgets/",
      "test/scenario/budgets",
      "test/scenario/llm-provider-paths",
      "test/scenario/llm-spending",
      "test/scenario/threats-llm",
    ],
    find: '    const text = one.toLowerCase().replace(/^\\/|\\/$/g, "");\n',
    replace: '    const text = one.replace(/^\\/|\\/$/g, "");\n',
  },

  {
    set: 2,
    name: "large outputs are decompressed on the main thread",
    class: "work",
    effect:
      "A provider sends a compressed response of 16 MiB, and all other requests of the thread wait until it is decompressed.",
    file: "src/base/decompress.ts",
    tests: [
      "src/base/decompress",
      "test/inputs/",
      "test/scenario/faults-loop",
      "test/scenario/llm-upstream-faults",
      "test/scenario/threats-llm",
    ],
    find: "  const output = coding && decompressNow(coding, bytes, Math.min(PIECE_BYTES, most));\n",
    replace: "  const output = coding && decompressNow(coding, bytes, most);\n",
  },
  {
    set: 2,
    name: "the held input of tool calls is added up for each chunk",
    class: "work",
    effect:
      "A provider starts many tool calls and sends many small chunks. Each chunk visits all open calls, so that the work grows with the product of both.",
    file: "src/llm/dialects/translation.ts",
    tests: ["src/llm/dialects/", "test/inputs/", "test/scenario/faults-loop-llm", "test/scenario/threats-llm"],
    find: "    return this.#heldChars;\n",
    replace:
      "    return [...this.#queue.values()].reduce((sum, one) => sum + (one.isStarted ? 0 : one.heldChars), 0);\n",
  },
  {
    set: 2,
    name: "all waiting HTTP/2 connections have their turn in one iteration",
    class: "work",
    effect:
      "Hundreds of connections flood the gateway with frames, and each iteration of the event loop handles a full turn of all of them before other clients are served.",
    file: "src/http/h2/read-turns.ts",
    tests: [
      "src/http/h2/",
      "src/pipeline/listen/",
      "test/inputs/",
      "test/scenario/faults-loop",
      "test/scenario/http2-floods",
      "test/scenario/threats-listener",
    ],
    find: "      if (left-- === 0) break;\n",
    replace: "",
  },
  {
    set: 2,
    name: "the folder store adds up all waiting changes for each change",
    class: "work",
    effect:
      "While the disk is slow, up to 8 MiB of changes wait, and each further change visits all of them, so that the event loop is blocked as well.",
    file: "src/store/folder-store.ts",
    tests: [
      "src/store/",
      "test/inputs/",
      "test/scenario/faults-disk",
      "test/scenario/faults-loop",
      "test/scenario/store-",
    ],
    find: "    waitingBytes += lineBytes(change) - (before === undefined ? 0 : lineBytes(before));\n",
    replace: "    waitingBytes = bytesOf(waiting);\n",
  },

  {
    set: 2,
    name: "servers without large messages keep their share of the message pool",
    class: "memory account",
    effect:
      "Each server connection that ever sent a large message counts forever. The share of each server shrinks to nothing, so that their large messages are paused and rejected until the gateway restarts.",
    file: "src/base/memory-budget.ts",
    tests: [
      "src/base/memory-budget",
      "src/mcp/transports/",
      "test/scenario/faults-memory",
      "test/scenario/mcp-leaks",
      "test/scenario/mcp-server-floods",
      "test/scenario/memory-",
    ],
    find: "    if (server.reservations === 0) this.#servers.delete(server);\n",
    replace: "",
  },
  {
    set: 2,
    name: "heads of HTTP/2 requests are not charged",
    class: "memory account",
    effect:
      "A client opens many streams with heads of 16 KiB that cost it almost nothing because of header compression, and does not read the responses. The gateway holds twice the memory that its limit for open streams allows.",
    file: "src/pipeline/listen/http2/http2-connection.ts",
    tests: [
      "src/pipeline/listen/",
      "src/base/memory-budget",
      "test/scenario/faults-memory",
      "test/scenario/http2-",
      "test/scenario/memory-",
    ],
    find: "      response.charge = this.#accounts.charge(response.client, request.bytes);\n",
    replace: "      response.charge = this.#accounts.charge(response.client, 0);\n",
  },
  {
    set: 2,
    name: "lines that could not be written to a log file are not counted",
    class: "memory account",
    effect:
      "While the disk is full, the audit records and log lines that wait for the next attempt grow without a limit, until the process runs out of memory.",
    file: "src/record/log/log-output.ts",
    tests: ["src/record/log/", "src/record/", "test/scenario/audit", "test/scenario/faults-disk"],
    find: `      await append(lines.join(""));
      waitingChars -= chars;
`,
    replace: `      waitingChars -= chars;
      await append(lines.join(""));
`,
  },
  {
    set: 2,
    name: "responses that are recorded for the cache are not charged",
    class: "memory account",
    effect:
      "Thousands of slow clients stream responses of a route with a response cache, and the gateway keeps up to 512 KiB for each of them beside its memory limits.",
    file: "src/llm/response-cache.ts",
    tests: [
      "test/scenario/faults-memory",
      "test/scenario/llm-cache",
      "test/scenario/llm-held-responses",
      "test/scenario/memory-",
    ],
    find: "      if (this.#bytes <= MAX_KEPT_BYTES && this.#sink?.hold(chunk.length + CHUNK_BYTES) === true)\n",
    replace: "      if (this.#bytes <= MAX_KEPT_BYTES)\n",
  },

  {
    set: 2,
    name: "audited results show credentials of the arguments",
    class: "output",
    effect:
      "A tool repeats a password that it got as an argument, and the audit record, in which the argument is hidden, contains it in the result.",
    file: "src/record/audit.ts",
    tests: [
      "src/record/",
      "test/redacted-fields",
      "test/scenario/audit",
      "test/scenario/redact",
      "test/scenario/secrets",
    ],
    find: '          ...(name === "arguments" ? { found: this.#secrets } : { alsoHidden: this.#secrets }),\n',
    replace: '          ...(name === "arguments" ? { found: this.#secrets } : {}),\n',
  },
  {
    set: 2,
    name: "viewers see why rules in shadow mode would deny",
    class: "output",
    effect:
      "A viewer of the UI reads the expressions of rules in shadow mode, and the claims and arguments of other users that these rules read.",
    file: "src/admin/ui/viewer.ts",
    tests: ["src/admin/ui/", "src/backends/ui/", "test/scenario/admin-interface", "test/scenario/views", "test/ui/"],
    find: "    ...(shadow ? { shadow: shadow.map(({ policy }) => ({ policy, reason: REDACTED })) } : {}),\n",
    replace: "    ...(shadow ? { shadow } : {}),\n",
  },
  {
    set: 2,
    name: "standard error of gwctl is not escaped",
    class: "output",
    effect:
      "An error that quotes a server, a file, or a response can move the cursor of the operator's terminal, clear it, or show other text.",
    file: "src/cli/terminal/terminal.ts",
    tests: [
      "src/cli/",
      "test/escaped-outputs",
      "test/gwctl-output",
      "test/scenario/gwctl-terminal",
      "test/scenario/gwctl-wrong-answers",
    ],
    find: "    err: { value: (text: string) => terminal.err(escapeOutput(text)) },\n",
    replace: "    err: { value: (text: string) => terminal.err(text) },\n",
  },
  {
    set: 2,
    name: "messages of Kubernetes conditions are not escaped",
    class: "output",
    effect:
      "A tenant puts control characters into a document, its status quotes them, and `kubectl describe` of an administrator shows forged lines.",
    file: "src/config/documents/status.ts",
    tests: [
      "src/config/documents/",
      "src/kubernetes/",
      "test/escaped-outputs",
      "test/scenario/gwctl-status",
      "test/scenario/kubernetes-",
    ],
    find: "  const shown = escapeLines(message);\n",
    replace: "  const shown = message;\n",
  },

  {
    set: 2,
    name: "WebSockets of other origins pass the policy `csrf`",
    class: "partial protection",
    effect:
      "A page of another site opens a WebSocket with the session of the user's browser, because its request is a GET, and sends commands over it.",
    file: "src/policies/csrf/policy.ts",
    tests: [
      "src/policies/csrf/",
      "test/scenario/browser-login",
      "test/scenario/http-websocket",
      "test/scenario/identity-",
      "test/scenario/threats-",
    ],
    find: '          if (SAFE_METHODS.has(request.method) && !request.headers.has("upgrade")) return undefined;\n',
    replace: "          if (SAFE_METHODS.has(request.method)) return undefined;\n",
  },
  {
    set: 2,
    name: "a path that could mean a limited route is accepted",
    class: "partial protection",
    effect:
      "A client spells the path of a route with a rate limit, a budget, or a guard so that another route matches, and a backend that reads it as the first route serves it without the limit.",
    file: "src/pipeline/route/match-route.ts",
    tests: [
      "src/pipeline/route/",
      "src/config/compile/",
      "test/scenario/canonical-path",
      "test/scenario/policies-protected",
      "test/scenario/threats-listener",
    ],
    find: '    return other !== undefined && other !== route && other.protection !== "none";\n',
    replace: '    return other !== undefined && other !== route && other.protection === "paths";\n',
  },
  {
    set: 2,
    name: "token limits accept requests that report no cost",
    class: "partial protection",
    effect:
      "A client whose token limit is enforced starts batches, videos, and other jobs without a limit, although a budget on the same route would reject them.",
    file: "src/policies/rate-limit/limit-hooks.ts",
    tests: [
      "src/policies/rate-limit/",
      "src/llm/request/",
      "test/scenario/limits-tokens",
      "test/scenario/llm-provider-paths",
      "test/scenario/llm-spending",
      "test/scenario/threats-llm",
    ],
    find: '    if (!isShadow && unpriced === "refuse") requireKnownCost(exchange.attributes.llm, "rateLimit");\n',
    replace: "",
  },
  {
    set: 2,
    name: "guards of MCP results do not read errors and notifications",
    class: "partial protection",
    effect:
      "A server puts text that a guard masks or rejects into the message of an error or of a log notification, and the client receives it.",
    file: "src/mcp/tools/result-guard.ts",
    tests: [
      "src/mcp/tools/",
      "test/scenario/mcp-guard-places",
      "test/scenario/mcp-guard-services",
      "test/scenario/mcp-tools",
      "test/scenario/threats-mcp",
    ],
    find: '  if (message.kind === "result" && DESCRIPTIONS.has(method)) return yield* guardedDescription(message, guard);\n',
    replace: `  if (message.kind !== "result") return message;
  if (DESCRIPTIONS.has(method)) return yield* guardedDescription(message, guard);
`,
  },
  {
    set: 2,
    name: "an invalid token reaches the backend if the policy is permissive",
    class: "partial protection",
    effect:
      "A client sends a forged or expired token to a route whose policy is permissive, and a backend that relies on the gateway's check trusts its claims.",
    file: "src/identity/access/bearer-authentication.ts",
    tests: [
      "src/identity/access/",
      "src/policies/jwt-auth/",
      "src/policies/oidc/",
      "test/scenario/identity-",
      "test/scenario/threats-identity",
      "test/scenario/withheld-credentials",
    ],
    find: "      reader.withhold(exchange, false);\n",
    replace: "",
  },

  {
    set: 3,
    name: "an interim response of a backend may declare a body",
    class: "missing check",
    effect:
      "A backend sends a 103 with a `content-length`, and the gateway reads the bytes of its body as the final response, while a proxy between them takes them for the body. The response of one client can be split into the response of another.",
    file: "src/http/h1/response-parser.ts",
    tests: [
      "src/http/h1/",
      "test/scenario/faults-connections",
      "test/scenario/http-client-contract",
      "test/scenario/threats-",
    ],
    find: '      if (framing.chunked || (framing.length ?? 0) > 0) throw new ResponseError("an interim response with a body");\n',
    replace: "",
  },
  {
    set: 3,
    name: "an error of the authorization service over gRPC allows the request",
    class: "missing check",
    effect:
      "A service that could not decide responds with `error_response` and a status with code 0, and the request reaches the protected backend.",
    file: "src/policies/ext-authz/grpc-check.ts",
    tests: ["test/scenario/ext-authz", "test/scenario/faults-dependencies"],
    find: '    if (errorResponse !== null) throw new Error("an error response");\n',
    replace: '    if (errorResponse !== null && okResponse !== null) throw new Error("an error response");\n',
  },
  {
    set: 3,
    name: "a moderation service may judge fewer texts than it received",
    class: "missing check",
    effect:
      "A moderation service that returns an empty or short list of results counts as if it had passed all texts, so that unchecked prompts reach the model.",
    file: "src/llm/guards/guard-services.ts",
    tests: ["src/llm/guards/", "test/scenario/llm-guard-", "test/scenario/mcp-guard-", "test/scenario/threats-llm"],
    find: `    if (results.length !== input.length) throw new Error(\`it judged \${results.length} texts of \${input.length}\`);
`,
    replace: "",
  },
  {
    set: 3,
    name: "a Secret of another namespace is read without a grant",
    class: "missing check",
    effect:
      "A tenant names a Secret of another namespace in `secretRef`, and the gateway sends its value to an address that the tenant chose.",
    file: "src/config/documents/confined-values.ts",
    tests: [
      "src/config/documents/",
      "src/kubernetes/",
      "test/scenario/identity-resource-documents",
      "test/scenario/kubernetes-",
      "test/scenario/tenants-",
      "test/scenario/threats-",
    ],
    find: '  if (!cluster.mayRefer(referrer, { group: "", kind: "Secret", namespace, name }))\n',
    replace: '  if (!cluster.mayRefer({ ...referrer, namespace }, { group: "", kind: "Secret", namespace, name }))\n',
  },
  {
    set: 3,
    name: "a record that may be used once can be taken twice",
    class: "missing check",
    effect:
      "Two requests that arrive together with the same invitation or the same `state` of a login at an MCP server are both accepted, also at two replicas, so that a copied link is still valid next to its first use.",
    file: "src/mcp/logins/vault.ts",
    tests: ["src/mcp/logins/", "test/scenario/mcp-login", "test/scenario/mcp-replicas", "test/scenario/threats-mcp"],
    find: "    return (await this.#store.delete(place)) ? value : undefined;\n",
    replace: `    await this.#store.delete(place);
    return value;
`,
  },

  {
    set: 3,
    name: "the extensions of chunks are limited for each chunk only",
    class: "limit",
    effect:
      "A client sends each byte of its body in a chunk with a long extension. The gateway reads thousands of times the bytes of the body, and no limit of bodies applies to them.",
    file: "src/http/h1/request-parser.ts",
    tests: [
      "src/http/h1/",
      "src/pipeline/listen/",
      "test/inputs/",
      "test/request-parsers",
      "test/scenario/edge-",
      "test/scenario/threats-listener",
    ],
    find: "    this.extensionBytes += (next === NOT_YET ? chunk.length : next) - at;\n",
    replace: "    this.extensionBytes = (next === NOT_YET ? chunk.length : next) - at;\n",
  },
  {
    set: 3,
    name: "the lines of a server-sent event are not added up",
    class: "limit",
    effect:
      "An MCP server, a provider, or a controller sends one event of endlessly many short lines, and the gateway keeps them until its memory is full. The bytes are not charged either.",
    file: "src/http/sse.ts",
    tests: [
      "src/http/",
      "src/llm/usage/",
      "src/mcp/transports/",
      "test/inputs/",
      "test/scenario/faults-loop",
      "test/scenario/llm-upstream-faults",
      "test/scenario/mcp-server-floods",
      "test/scenario/memory-",
    ],
    find: "        hold(i - start);\n",
    replace: "        if (i - start > maxBytes) throw new SseTooLarge(maxBytes);\n",
  },
  {
    set: 3,
    name: "a token without a key ID is verified with all keys",
    class: "limit",
    effect:
      "A client without credentials sends forged tokens without `kid`, and each of them costs a verification with each of up to 100 RSA keys, which stops the service for others.",
    file: "src/identity/keys/key-set.ts",
    tests: [
      "src/identity/keys/",
      "src/identity/tokens/",
      "src/policies/jwt-auth/",
      "test/inputs/",
      "test/scenario/identity-",
      "test/scenario/threats-identity",
    ],
    find: "const MAX_KEYS_TRIED = 8;\n",
    replace: "const MAX_KEYS_TRIED = 128;\n",
  },
  {
    set: 3,
    name: "bytes that a child process does not read are not counted",
    class: "limit",
    effect:
      "An MCP server that sends requests but does not read its input is never stopped, and the lines for it grow in the memory of the gateway. Calls of other clients are still sent to it.",
    file: "src/mcp/transports/stdio-transport.ts",
    tests: [
      "src/mcp/transports/",
      "test/inputs/",
      "test/scenario/faults-mcp-children",
      "test/scenario/mcp-child-ends",
      "test/scenario/mcp-server-floods",
      "test/scenario/memory-",
    ],
    find: "    return (this.#child?.stdin.writableLength ?? 0) + this.#batch.length;\n",
    replace: "    return this.#batch.length;\n",
  },

  {
    set: 3,
    name: "a parameter with an API key is withheld only under its plain name",
    class: "second reader",
    effect:
      "A client authenticates with its own key and adds a second parameter with an encoded name, such as `%6Bey`. The backend decodes the name and reads a key that the gateway did not check.",
    file: "src/identity/access/withheld-credentials.ts",
    tests: [
      "src/identity/access/",
      "src/policies/api-key/",
      "src/policies/jwt-auth/",
      "test/scenario/identity-",
      "test/scenario/policies-mirror",
      "test/scenario/threats-identity",
      "test/scenario/withheld-credentials",
    ],
    find: '  return readFormPairs(QUERY, part)[0]?.name ?? "";\n',
    replace:
      '  return part.includes("+") ? (readFormPairs(QUERY, part)[0]?.name ?? "") : (part.split("=", 1)[0] ?? "");\n',
  },
  {
    set: 3,
    name: "methods of notifications from MCP servers are read without their JSON escapes",
    class: "second reader",
    effect:
      "A server writes `notifications\\/cancelled`. The gateway forwards it as an unknown notification with the server's own ID, the client decodes it, and cancels the request of another server that has this ID.",
    file: "src/mcp/transports/server-messages.ts",
    tests: [
      "src/mcp/",
      "test/fuzz/",
      "test/inputs/",
      "test/scenario/faults-loop-mcp",
      "test/scenario/mcp-guard-places",
      "test/scenario/threats-mcp",
    ],
    find: "  const name = keyAt(text, method.start, method.end);\n",
    replace: `  const name =
    id === undefined ? text.slice(method.start + 1, method.end - 1) : keyAt(text, method.start, method.end);
`,
  },
  {
    set: 3,
    name: "reserved query parameters and cookies of an OpenAPI server are compared exactly",
    class: "second reader",
    effect:
      "A description declares `API_KEY` next to the credential `api_key` of the configuration. A client can set it, and a server that ignores case reads the client's value instead of the gateway's.",
    file: "src/mcp/openapi/parameters.ts",
    tests: [
      "src/mcp/openapi/",
      "test/inputs/",
      "test/scenario/mcp-openapi",
      "test/scenario/mcp-tool-rules",
      "test/scenario/openapi-differential",
      "test/scenario/threats-mcp",
    ],
    find: '        (place === "header" ? isSameHeader(one.name, name) : foldedName(one.name) === foldedName(name))),\n',
    replace: '        (place === "header" ? isSameHeader(one.name, name) : one.name === name)),\n',
  },
  {
    set: 3,
    name: "the last of several names of a form part counts",
    class: "second reader",
    effect:
      'A client sends `name="model"; name="prompt"`. The gateway reads a prompt, the provider reads the first name, and the call uses a model that the rules and limits did not see.',
    file: "src/llm/request/read-request.ts",
    tests: [
      "src/llm/request/",
      "test/fuzz/",
      "test/inputs/",
      "test/scenario/llm-ambiguous-bodies",
      "test/scenario/llm-named-models",
      "test/scenario/threats-llm",
    ],
    find: "    if (parameters.has(name.toLowerCase())) return undefined;\n",
    replace: "",
  },

  {
    set: 3,
    name: "each match of a guard is compared with all borders of a text",
    class: "work",
    effect:
      "A prompt of many short parts with many matches takes the product of both numbers, and blocks the event loop for seconds.",
    file: "src/llm/guards/guarded-text.ts",
    tests: [
      "src/llm/guards/",
      "test/inputs/",
      "test/scenario/faults-loop-llm",
      "test/scenario/llm-guard-",
      "test/scenario/threats-llm",
    ],
    find: "  const next = firstWhere(borders, (border) => border > after);\n",
    replace: "  const [next] = borders.filter((border) => border > after);\n",
  },
  {
    set: 3,
    name: "responses of an API are escaped in one piece",
    class: "work",
    effect:
      "A large text of an OpenAPI server is converted in one step, which blocks the event loop for hundreds of milliseconds.",
    file: "src/mcp/openapi/api-results.ts",
    tests: [
      "src/mcp/openapi/",
      "test/inputs/",
      "test/scenario/faults-loop",
      "test/scenario/mcp-openapi",
      "test/scenario/threats-mcp",
    ],
    find: "    let end = Math.min(text.length, at + STEP_CHARS);\n",
    replace: "    let end = text.length;\n",
  },
  {
    set: 3,
    name: "a snapshot is serialized again for each data plane",
    class: "work",
    effect:
      "A tenant with large documents and many data planes makes the controller serialize up to 64 MiB for each of them after each change, so that it stops serving all Gateways.",
    file: "src/kubernetes/snapshot-server.ts",
    tests: ["src/kubernetes/", "test/inputs/", "test/scenario/kubernetes-"],
    find: "    else stream.response.write(`event: snapshot\\ndata: ${next.text}\\n\\n`);\n",
    replace: "    else stream.response.write(`event: snapshot\\ndata: ${JSON.stringify(next.snapshot)}\\n\\n`);\n",
  },
  {
    set: 3,
    name: "the body of an LLM request is scanned without a pause",
    class: "work",
    effect: "A request with a large body blocks the event loop until the whole body is scanned.",
    file: "src/llm/request/read-request.ts",
    tests: [
      "src/llm/request/",
      "test/inputs/",
      "test/scenario/faults-loop",
      "test/scenario/llm-large-body",
      "test/scenario/threats-llm",
    ],
    find: "    if (from > 0) yield;\n",
    replace: "",
  },

  {
    set: 3,
    name: "the body of a client that waits for an HTTP/2 backend is not charged",
    class: "memory account",
    effect:
      "Clients that upload to a slow backend over HTTP/2 fill the buffers of its streams, but none of them is closed for its share, and the memory of the process grows beyond the limit.",
    file: "src/http/h2/stream-call.ts",
    tests: [
      "src/http/",
      "src/pipeline/",
      "test/scenario/faults-memory",
      "test/scenario/http-bodies",
      "test/scenario/http2",
      "test/scenario/memory-",
    ],
    find: "    body.queued?.(stream.writableLength);\n",
    replace: "",
  },
  {
    set: 3,
    name: "expired events of an MCP session stay charged",
    class: "memory account",
    effect:
      "A session that runs for hours is charged for all events that it ever sent. Its log becomes empty, and the gateway ends idle sessions of the client or rejects new ones with 503.",
    file: "src/mcp/session/event-stream.ts",
    tests: [
      "src/mcp/session/",
      "test/scenario/faults-memory",
      "test/scenario/mcp-leaks",
      "test/scenario/mcp-resume",
      "test/scenario/memory-",
    ],
    find: "    this.#account.shrink(this.#bytes - bytes);\n",
    replace: "",
  },
  {
    set: 3,
    name: "responses of providers that are read whole are not charged",
    class: "memory account",
    effect:
      "Each translated call holds up to 16 MiB of a response that arrives slowly. A few hundred of them exceed the memory of the gateway, which the budget should prevent.",
    file: "src/llm/provider-response.ts",
    tests: [
      "src/llm/",
      "test/scenario/faults-memory",
      "test/scenario/llm-held-responses",
      "test/scenario/llm-upstream-faults",
      "test/scenario/memory-",
    ],
    find: '    else if (!this.#charge(this.#heldBytes)) this.#giveUp("overloaded", MEMORY_SHORT);\n',
    replace: "",
  },
  {
    set: 3,
    name: "values that were written to the store of the main thread stay counted",
    class: "memory account",
    effect:
      "After a worker thread has written 8 MiB in all, each further session, login, and cached response is rejected until the process restarts.",
    file: "src/store/remote-store.ts",
    tests: ["src/store/", "test/scenario/store-", "test/scenario/threads", "test/scenario/upgrade-store"],
    find: "    sentBytes -= one.bytes;\n",
    replace: "",
  },

  {
    set: 3,
    name: "verdicts about names are remembered without their place",
    class: "output",
    effect:
      "After JSON with the member `code` or `key` was shown, the authorization codes and API keys in queries with these names appear in logs, records, and traces.",
    file: "src/record/trace/sensitive-names.ts",
    tests: [
      "src/record/",
      "test/redacted-fields",
      "test/scenario/redact",
      "test/scenario/secrets",
      "test/scenario/trace-secrets",
    ],
    find: "  const cache = caches[place];\n",
    replace: "  const cache = caches.header;\n",
  },
  {
    set: 3,
    name: "C1 control characters are not escaped",
    class: "output",
    effect:
      "A client or server sends U+009B, which terminals read as the start of a control sequence, and changes what an operator sees in logs and in `gwctl`.",
    file: "src/base/safe-text.ts",
    tests: [
      "src/base/",
      "src/record/log/",
      "test/escaped-outputs",
      "test/gwctl-output",
      "test/scenario/gwctl-terminal",
      "test/scenario/metrics-and-access-log",
      "test/scenario/threats-",
    ],
    find: "\\\\u000b-\\\\u001f\\\\u007f-\\\\u009f\\\\u061c",
    replace: "\\\\u000b-\\\\u001f\\\\u007f\\\\u061c",
  },
  {
    set: 3,
    name: "an MCP server over HTTP+SSE can quote the gateway's credentials",
    class: "output",
    effect:
      "A server that rejects a message quotes the configured API key in its error, and the client receives the key in the error of its call.",
    file: "src/mcp/transports/sse-transport.ts",
    tests: [
      "src/mcp/",
      "test/redacted-fields",
      "test/scenario/mcp-failures",
      "test/scenario/mcp-quoted-credentials",
      "test/scenario/redact",
      "test/scenario/secrets",
      "test/scenario/threats-mcp",
    ],
    find: "server.rejection(status, text)",
    replace: "`answered with status ${status}: ${text.trim().slice(0, 200)}`",
  },
  {
    set: 3,
    name: "backslashes in labels of metrics are not escaped",
    class: "output",
    effect:
      "A client chooses a name that contains a backslash and a quote, ends the label early, and forges other labels, or makes the page of metrics unreadable for the collector.",
    file: "src/record/log/metrics.ts",
    tests: ["src/record/", "test/escaped-outputs", "test/scenario/metrics-and-access-log", "test/scenario/threats-"],
    find: '  return value.replace(/[\\\\"\\n]/g, (char) =>',
    replace: '  return value.replace(/["\\n]/g, (char) =>',
  },

  {
    set: 3,
    name: "the cookies of the gateway are withheld only without TLS",
    class: "partial protection",
    effect:
      "On a listener with TLS, the session cookies of browser logins have a prefix, and reach backends, mirrors, and services, which can use them as the user.",
    file: "src/identity/access/cookies.ts",
    tests: [
      "src/identity/",
      "src/policies/oidc/",
      "test/scenario/browser-login",
      "test/scenario/ext-authz",
      "test/scenario/ext-proc",
      "test/scenario/policies-mirror",
      "test/scenario/threats-identity",
      "test/scenario/withheld-credentials",
    ],
    find: "constantRegExp(`^(?:__Host-)?${OWN_PREFIX}`)",
    replace: "constantRegExp(`^${OWN_PREFIX}`)",
  },
  {
    set: 3,
    name: "completions of resource templates are not judged",
    class: "partial protection",
    effect:
      "A client whose rules hide a resource template asks for completions of its arguments, and receives values from the hidden resource.",
    file: "src/mcp/protocol/access.ts",
    tests: [
      "src/mcp/protocol/",
      "src/policies/mcp-authorization/",
      "test/scenario/mcp-authorization",
      "test/scenario/mcp-streamable-http",
      "test/scenario/threats-mcp",
    ],
    find: '      return ref?.type === "ref/prompt" ? named("prompt", ref.name) : named("resource", ref?.uri);\n',
    replace: '      return ref?.type === "ref/prompt" ? named("prompt", ref.name) : undefined;\n',
  },
  {
    set: 3,
    name: "a context header that cannot be computed keeps the client's value",
    class: "partial protection",
    effect:
      "A client sends the header that the authorization service trusts as context of the gateway. If the expression for it has no value for this request, the service believes the client.",
    file: "src/policies/ext-authz/http-check.ts",
    tests: ["test/scenario/ext-authz", "test/scenario/headers-asserted", "test/scenario/threats-"],
    find: "    headers.assert(name, value !== undefined && isHeaderValue(value) ? value : undefined);\n",
    replace: "    if (value !== undefined && isHeaderValue(value)) headers.assert(name, value);\n",
  },
  {
    set: 3,
    name: "mirrors outside of the cluster receive the credentials of clients",
    class: "partial protection",
    effect:
      "The server of a mirror that is named by its host receives the API keys, tokens, and session cookies that are withheld from the backend, and can act as the users.",
    file: "src/policies/request-mirror/policy.ts",
    tests: [
      "src/policies/request-mirror/",
      "test/scenario/policies-mirror",
      "test/scenario/threats-",
      "test/scenario/withheld-credentials",
    ],
    find: "    withholdCredentials(exchange, copy);\n",
    replace: "    if (host === undefined) withholdCredentials(exchange, copy);\n",
  },
  {
    set: 3,
    name: "the saved snapshot of a data plane is private only if its folder is",
    class: "partial protection",
    effect:
      "In a folder that existed before, such as a mounted volume, the file with the Secrets of the Gateway can be read by all local users.",
    file: "src/kubernetes/follow-controller.ts",
    tests: ["src/kubernetes/", "test/scenario/kubernetes-follow", "test/scenario/secrets"],
    find: '      writeFileSync(file, "", { flag: "a", mode: 0o600 });\n',
    replace: '      writeFileSync(file, "", { flag: "a" });\n',
  },
];
