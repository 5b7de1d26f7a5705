/**
 * Faults to put into the gateway, one at a time, to check that the simulation finds them (`npm run simulate -- --mutate`):
 * ten fixes are reverted, ten faults are deliberate, three are in the code of worker threads, two in that of
 * data planes, and one is in a limit. `find` must occur once in the file.
 */
export const MUTATIONS = [
  // Reverted fixes.
  {
    name: "a tunnel relays before it is registered (fixed in 94a01ecf)",
    file: "src/pipeline/listen/tunnel.ts",
    find: `  }

  /**
   * Relays bytes from now on, beginning with those that the client sent together with its request. If a side is already
   * closed, the tunnel may close during this call.
   */
  start(firstBytes: Buffer): void {
`,
    replace: `    for (const direction of this.#directions) this.#relay(direction);
  }

  start(firstBytes: Buffer): void {
    if (firstBytes.length > 0) this.#guard(() => this.#pass(this.#directions[0] as Direction, firstBytes));
    if (this.#open >= 0) return;
`,
  },
  {
    name: "an upgrade loses a client's response to its server (fixed in d4ed0058)",
    file: "src/app/upgrade/predecessor.ts",
    find: "      opened.setServed(true);\n",
    replace: "",
  },
  {
    name: "an upgrade loses a cancellation (fixed in ee25fad0)",
    file: "src/app/upgrade/predecessor.ts",
    find: "      hasBus = true;\n",
    replace: "",
  },
  {
    name: "the old process of an upgrade does not close its in-memory store (fixed in 4be9772b)",
    file: "src/app/upgrade/upgrade.ts",
    find: '      if (before?.kind === "memory") await before.close();\n',
    replace: "",
  },
  {
    name: "an upgrade closes a connection that a response promised to keep (fixed in 277496b9)",
    file: "src/pipeline/listen/listener.ts",
    find: "    return (this.#hasDrainStarted && !this.#isLingering) ||",
    replace: "    return this.#hasDrainStarted ||",
  },
  {
    name: "data planes stay at a standby controller (fixed in 11f42d50)",
    file: "src/kubernetes/controller.ts",
    find: "    isReady: () => isPublished,\n",
    replace: "    isReady: () => isPublished && isLeader(),\n",
    also: {
      file: "src/kubernetes/snapshot-server.ts",
      find: 'const CLOSE = { connection: "close" };\n',
      replace: "const CLOSE = {};\n",
    },
  },
  {
    name: "a guard releases held text when another choice gets text (fixed in 59201a46)",
    file: "src/llm/guards/stream-guard.ts",
    find: "      const before = isEnded === undefined ? [] : yield* release(isEnded);\n",
    replace:
      "      const before = yield* release((key) => isEnded?.(key) === true || !places.some(({ channel }) => channel === key));\n",
  },
  {
    name: "a session does not release its memory (fixed in d61d977f)",
    file: "src/mcp/session/session-store.ts",
    find: "      account.close();\n",
    replace: "",
  },
  {
    name: "a session that its server does not end keeps its connection (fixed in 5ff445ab)",
    file: "src/mcp/transports/http-transport.ts",
    find: "      call.abort();\n      resolve();\n",
    replace: "      resolve();\n",
  },
  {
    name: "a client waits for a response that a restart lost (fixed in b50fcde1)",
    file: "src/mcp/session/session-streams.ts",
    find: "    if (stream === GENERAL_STREAM || answers === undefined) return undefined;\n",
    replace: "    if (stream >= GENERAL_STREAM || answers === undefined) return undefined;\n",
  },
  // Deliberate faults.
  {
    name: "a response waits for ever after backpressure (lost wakeup)",
    file: "src/pipeline/listen/response-writer.ts",
    find: "    this.#contain(this.onDrain);\n",
    replace: "",
  },
  {
    name: "a request body waits for ever after backpressure (lost wakeup)",
    file: "src/http/h1/connection.ts",
    find: "    else body.resume();\n",
    replace: "",
  },
  {
    name: "a budget admits a call when it is exhausted (off by one)",
    file: "src/llm/budgets/budget-charge.ts",
    find: "budget.limit - 1 + amount",
    replace: "budget.limit + amount",
  },
  {
    name: "a folder store keeps its lock (missing unlock)",
    file: "src/store/folder-lock.ts",
    find: "      if (isHeld()) rmSync(file, { force: true });\n",
    replace: "",
  },
  {
    name: "a resumed session gets the record of another session (wrong session after resume)",
    file: "src/mcp/session/session-store.ts",
    find: "    return this.#add({ id, record, eventsBefore: this.#env.clock.now() }, from, account);\n",
    replace:
      "    const other = [...this.#sessions.values()].at(-1)?.record ?? record;\n    return this.#add({ id, record: other, eventsBefore: this.#env.clock.now() }, from, account);\n",
  },
  {
    name: "every request is settled twice",
    file: "src/pipeline/phases/delivery.ts",
    find: "  guarded(env, exchange, () => env.settled(exchange, outcome));\n",
    replace:
      "  guarded(env, exchange, () => env.settled(exchange, outcome));\n  guarded(env, exchange, () => env.settled(exchange, outcome));\n",
  },
  {
    name: "an aborted request gives its backend connection back",
    file: "src/http/h1/connection.ts",
    find: "    this.#attempt = undefined;\n    this.#retire();\n  }\n\n  proceed",
    replace: "    this.#attempt = undefined;\n    this.#release();\n  }\n\n  proceed",
  },
  {
    name: "the shared read buffer is not copied",
    file: "src/http/h1/socket-reads.ts",
    find: "  const chunk = Buffer.allocUnsafe(bytes.length);\n  chunk.set(bytes);\n  return chunk;\n",
    replace: "  return bytes;\n",
  },
  {
    name: "the end of the drain does not resolve the shutdown",
    file: "src/pipeline/listen/listener.ts",
    find: "    if (this.#hasDrainStarted) this.#resolveDrained();\n  }",
    replace: "  }",
  },
  {
    name: "a POST request is retried on a stale connection",
    file: "src/pipeline/phases/attempt-runner.ts",
    find: '"PUT", "DELETE"]);',
    replace: '"PUT", "DELETE", "POST"]);',
  },
  // Worker threads.
  {
    name: "requests that were forwarded to a thread that died get no response",
    file: "src/app/threads/forwarding.ts",
    find: "    for (const request of this.#forwarded.values()) this.contain(() => request.lost(), ignore);\n",
    replace: "",
  },
  {
    name: "a replaced thread is not connected to the other threads",
    file: "src/app/threads/thread-pool.ts",
    find: "        for (const [other, peer] of running) connect(number, thread, other, peer);\n        requireSuccess",
    replace: "        requireSuccess",
  },
  {
    name: "the window of a forwarded request body is not opened again",
    file: "src/app/threads/forwarding.ts",
    find: '      this.#link.send({ kind: "read", id: this.#id, bytes: this.#read });\n',
    replace: "",
  },
  // Data planes of a Kubernetes cluster.
  {
    name: "a data plane does not save its configuration",
    file: "src/kubernetes/follow-controller.ts",
    find: "    if (outcome.isServed) save(snapshot);\n",
    replace: "",
  },
  {
    name: "changed endpoints wait for the next change of a route",
    file: "src/kubernetes/follow-controller.ts",
    find: "      takeEndpoints(snapshot);\n      const isNew = latest?.version !== snapshot.version;\n      latest = snapshot;\n      if (!isNew) return;\n",
    replace:
      "      const isNew = latest?.version !== snapshot.version;\n      latest = snapshot;\n      if (!isNew) return;\n      takeEndpoints(snapshot);\n",
  },
  // Limits of requests.
  {
    name: "a request may have any number of trailers",
    file: "src/http/h1/request-parser.ts",
    find: "      if (this.#lines > this.framing.maxItems || this.#trailerBytes > MAX_TRAILER_BYTES)\n",
    replace: "      if (this.#trailerBytes > MAX_TRAILER_BYTES)\n",
  },
  {
    name: "an address may have one connection more than its limit",
    file: "src/pipeline/listen/listener.ts",
    find: "      if (open >= limit) {\n",
    replace: "      if (open > limit) {\n",
  },
  {
    name: "a connection that an address closes counts forever",
    file: "src/pipeline/listen/listener.ts",
    find: "        if (left > 0) perAddress.set(address, left);\n        else perAddress.delete(address);\n",
    replace: "        if (left === 0) perAddress.delete(address);\n",
  },
  {
    name: "a client may have one MCP session more than its limit",
    file: "src/mcp/session/session-store.ts",
    find: "    if (this.#countOf(client) >= maxSessionsPerClient &&",
    replace: "    if (this.#countOf(client) > maxSessionsPerClient &&",
  },
  // Files.
  {
    name: "a folder store does not close its journal",
    file: "src/store/folder-store.ts",
    find: "    await quietly(journal.close());\n    lock.release();",
    replace: "    lock.release();",
  },
];
