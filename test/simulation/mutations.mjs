/**
 * Faults to put into the gateway, one at a time, to check that the simulation finds them (`npm run simulate -- --mutate`).
 * `find` must occur once in the file.
 */
export const MUTATIONS = [
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
    name: "a tunnel does not close its memory account",
    file: "src/pipeline/listen/tunnel.ts",
    find: "      this.#account.close();\n",
    replace: "",
  },
  {
    name: "a tunnel does not read on after backpressure",
    file: "src/pipeline/listen/tunnel.ts",
    find: "      this.#charge();\n      this.#readOn(direction);\n",
    replace: "      this.#charge();\n",
  },
  {
    name: "a backend connection is reused while a request body is written",
    file: "src/http/h1/connection.ts",
    find: "|| this.#bodyWriter !== undefined || this.#isGone) {",
    replace: "|| this.#isGone) {",
  },
  {
    name: "the backend's connection: close is ignored",
    file: "src/http/h1/connection.ts",
    find: "if (!this.#keepAlive || this.#bodyWriter",
    replace: "if (this.#bodyWriter",
  },
  {
    name: "an aborted request gives its backend connection back",
    file: "src/http/h1/connection.ts",
    find: "    this.#attempt = undefined;\n    this.#retire();\n  }\n\n  proceed",
    replace: "    this.#attempt = undefined;\n    this.#release();\n  }\n\n  proceed",
  },
  {
    name: "a request body waits for ever after backpressure (lost wakeup)",
    file: "src/http/h1/connection.ts",
    find: "    else body.resume();\n",
    replace: "",
  },
  {
    name: "the shared read buffer is not copied",
    file: "src/http/h1/socket-reads.ts",
    find: "  const chunk = Buffer.allocUnsafe(bytes.length);\n  chunk.set(bytes);\n  return chunk;\n",
    replace: "  return bytes;\n",
  },
  {
    name: "a response waits for ever after backpressure (lost wakeup)",
    file: "src/pipeline/listen/response-writer.ts",
    find: "    this.#contain(this.onDrain);\n",
    replace: "",
  },
  {
    name: "every request is settled twice",
    file: "src/pipeline/phases/delivery.ts",
    find: "  guarded(env, exchange, () => env.settled(exchange, outcome));\n",
    replace:
      "  guarded(env, exchange, () => env.settled(exchange, outcome));\n  guarded(env, exchange, () => env.settled(exchange, outcome));\n",
  },
  {
    name: "a rejected or aborted body keeps its memory",
    file: "src/base/memory-budget.ts",
    find: "    this.#pool.free(this, bytes, true);\n",
    replace: "    if (this.#isFinished) this.#pool.free(this, bytes, true);\n",
  },
  {
    name: "a new connection has no deadline for its head",
    file: "src/pipeline/listen/client-connection.ts",
    find: "    this.#deadline = new SweepDeadline(owner);\n    this.#deadline.in(owner.headersTimeoutMs);\n",
    replace: "    this.#deadline = new SweepDeadline(owner);\n",
  },
  {
    name: "the end of the drain does not resolve the shutdown",
    file: "src/pipeline/listen/open-connections.ts",
    find: "      if (draining) resolveDrained();\n    },",
    replace: "    },",
  },
  {
    name: "a listener's timers survive the shutdown",
    file: "src/pipeline/listen/open-connections.ts",
    find: "      sweep.cancel();\n",
    replace: "",
  },
  {
    name: "a budget admits a call when it is exhausted (off by one)",
    file: "src/llm/budgets/budget-charge.ts",
    find: "budget.limit - 1 + amount",
    replace: "budget.limit + amount",
  },
  {
    name: "a budget is not corrected when a call ends",
    file: "src/llm/budgets/budget-charge.ts",
    find: "      this.#add(i, amount - (this.#taken[i] as number));\n",
    replace: "",
  },
  {
    name: "a budget is released instead of settled",
    file: "src/llm/budgets/budget-charge.ts",
    find: "      const amount = used(claim) ?? (this.#taken[i] as number);\n",
    replace: "      const amount = 0;\n",
  },
  {
    name: "progress notifications keep the token of the gateway",
    file: "src/mcp/server-side/server-connection.ts",
    find: "this.#notifyCall(pending, edited(message, [{ ...token, text: pending.progressToken }]));",
    replace: "this.#notifyCall(pending, message);",
  },
  {
    name: "idle MCP sessions are not ended",
    file: "src/mcp/session/session-store.ts",
    find: '        holder.end("it was idle", false);\n',
    replace: "",
  },
  {
    name: "a POST request is retried on a stale connection",
    file: "src/pipeline/phases/attempt.ts",
    find: '"PUT", "DELETE"]);',
    replace: '"PUT", "DELETE", "POST"]);',
  },
];
