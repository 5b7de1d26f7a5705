/**
 * Sends requests of every kind through a gateway, and remembers what the client knows about each.
 */
import { Agent, request as httpRequest, type IncomingMessage } from "node:http";
import type { Random } from "../random.ts";
import type { Behavior, Plan, Servers } from "./servers.ts";

/** US dollars per million tokens. */
const RATES: Readonly<Record<string, { readonly input: number; readonly output: number }>> = {
  alpha: { input: 1, output: 2 },
  beta: { input: 3, output: 5 },
};
export const PRICES = JSON.stringify({
  providers: {
    first: { models: { alpha: { rates: RATES.alpha } } },
    second: { models: { beta: { rates: RATES.beta } } },
  },
});
export const USERS = ["ada", "bob"] as const;
type User = (typeof USERS)[number];
export const keyOf = (user: User): string => `key-of-${user}-0000`;
const teamOf = (user: User): string => (user === "ada" ? "red" : "blue");
/** The users of the routes `llm-capped` and `llm-poor` use up their limits with one call. */
const LIMITED = 5;

export interface Sent {
  readonly id: string;
  readonly kind: string;
  readonly route: string;
  readonly outcome: "ok" | "rejected" | "failed" | "aborted";
  /** Null if the client left before the response head. */
  readonly status: number | null;
  readonly user?: string | undefined;
  readonly tool?: string;
  /** The model that served the call, for calls that used tokens. */
  readonly model?: string;
  /** Undefined if the client does not know them, because the gateway estimates them. */
  readonly tokens?: readonly [input: number, output: number] | undefined;
  readonly costNano?: number | undefined;
  readonly attempts?: number;
  readonly clientMs: number;
}

export function configOf(servers: Servers, config: object, port = 0): object {
  const provider = (name: "first" | "second", model?: string): object => ({
    name,
    provider: { openAICompatible: { name, baseUrl: `http://${servers[name]}/v1`, ...(model ? { model } : {}) } },
  });
  const keys = {
    keys: USERS.map((user) => ({ key: keyOf(user), metadata: { user_id: user, team: teamOf(user) } })),
  };
  const groups = [{ providers: [provider("first")] }, { providers: [provider("second", "beta")] }];
  const ai = (more: object = {}): object => ({
    ai: { modelCatalog: "prices.json", cooldown: { allowedFailures: 1000 }, groups, ...more },
  });
  const route = (name: string, policies: object, backends: object[], more: object = {}): object => ({
    name,
    matches: [{ path: { pathPrefix: `/${name}` } }],
    policies,
    ...(backends.length === 0 ? {} : { backends }),
    ...more,
  });
  const host = { host: servers.http };
  const shared = { name: "shared", cost: 1000, per: "month" };
  return {
    config,
    gateways: { default: { port, address: "127.0.0.1", policies: { budgets: { limits: [shared] } } } },
    routes: [
      route("plain", { retry: { attempts: 1, backoff: "1ms", codes: [503] } }, [host]),
      route("slow", { timeout: { backendRequestTimeout: "30ms" } }, [host]),
      route("down", {}, [{ host: "127.0.0.1:1" }]),
      route("closed", { authorization: { rules: ['request.method == "PUT"'] } }, [host]),
      route("limited", { rateLimit: { local: [{ requests: LIMITED, unit: "Hours" }] } }, [host]),
      route("direct", { directResponse: { status: 200, body: "hello" } }, []),
      route("mirrored", { requestMirror: [{ host: servers.http }] }, [host]),
      {
        ...route("tools", { apiKey: keys, mcpAuthorization: { rules: ['mcp.tool.name != "secret"'] } }, [
          {
            mcp: {
              targets: [
                { name: "remote", mcp: { url: servers.mcpUrl } },
                { name: "local", stdio: { cmd: process.execPath, args: ["-e", servers.mcpSource] } },
              ],
            },
          },
        ]),
      },
      route(
        "llm",
        {
          apiKey: keys,
          budgets: { limits: [shared, { name: "each", tokens: 1e9, per: "day", key: "apiKey.user_id" }] },
          ai: {
            promptGuard: {
              request: [{ regex: { action: "reject", rules: [{ pattern: "forbidden-question" }] } }],
              response: [{ regex: { action: "reject", rules: [{ pattern: "forbidden-answer" }] } }],
            },
          },
        },
        [ai()],
      ),
      route("llm-slow", { apiKey: keys, timeout: { requestTimeout: "60ms" } }, [
        ai({ groups: [{ providers: [provider("first")] }] }),
      ]),
      route("llm-unpriced", { apiKey: keys }, [
        ai({ groups: [{ providers: [provider("first", "alpha")] }, { providers: [provider("second", "gamma")] }] }),
      ]),
      route("llm-gamma", { apiKey: keys }, [ai({ groups: [{ providers: [provider("first", "gamma")] }] })]),
      route("llm-cached", { apiKey: keys }, [ai({ cache: { ttl: "10m" } })]),
      route("llm-capped", { apiKey: keys, rateLimit: { local: [{ tokens: 20, unit: "Hours" }] } }, [ai()]),
      route("llm-poor", { apiKey: keys, budgets: { limits: [{ name: "poor", tokens: 20, per: "day" }] } }, [ai()]),
    ],
  };
}

interface Reply {
  readonly status: number | null;
  readonly text: string;
  readonly ms: number;
}

interface Call {
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: object | undefined;
  /** Leaves when a server has received the request, or at the head or the first byte of the body of the response. */
  readonly leave?: "before" | "head" | "after" | undefined;
}

type Result = Omit<Sent, "id" | "kind" | "clientMs">;
type Kind = (run: Run) => Promise<Result>;

export interface Run {
  readonly id: string;
  readonly random: Random;
  readonly user: User;
  readonly generator: Generator;
  /** The URL of the replica. */
  readonly url: string;
  call(call: Call): Promise<Reply>;
}

export class Generator {
  readonly sent: Sent[] = [];
  readonly failures: string[] = [];
  readonly servers: Servers;
  readonly #urls: readonly string[];
  readonly #random: Random;
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 16 });
  readonly #uses = new Map<string, { readonly count: number; readonly last: Promise<Result> }>();
  readonly #cached = new Map<User, Plan>();
  readonly #sessions = new Map<User, string>();

  constructor(urls: readonly string[], servers: Servers, random: Random) {
    this.#urls = urls;
    this.servers = servers;
    this.#random = random;
  }

  /** Opens the MCP sessions, then sends each kind once, and then random kinds. */
  async send(count: number, parallel: number): Promise<void> {
    for (const user of USERS) await this.#one("mcpOpen", openSession(user), user);
    for (const user of USERS) await this.#one("mcpOpened", sessionOpened, user);
    await this.sendMore(count - this.sent.length, parallel);
  }

  async sendMore(count: number, parallel: number): Promise<void> {
    const kinds = Object.entries(KINDS);
    const pending = Array.from({ length: count }, (_, i) => kinds[i] ?? this.#random.pick(kinds));
    const worker = async (): Promise<void> => {
      for (let next = pending.shift(); next !== undefined; next = pending.shift())
        await this.#one(next[0], next[1], this.#random.pick(USERS));
    };
    await Promise.all(Array.from({ length: parallel }, worker));
  }

  /** Starts a request of each kind that a server never completes. Resolves when the servers have received them. */
  async startOpen(url: string): Promise<{ readonly ids: readonly string[]; readonly ended: Promise<unknown> }> {
    const ids: string[] = [];
    const ended: Promise<unknown>[] = [];
    for (const user of USERS)
      for (const callFor of Object.values(OPEN_CALLS)) {
        const id = `open-${ids.length}-${this.#random.int(1e9)}`;
        ids.push(id);
        ended.push(this.#call(url, id, callFor(id, user, this)).catch(() => undefined));
      }
    await Promise.all(ids.map((id) => this.servers.arrived(id)));
    return { ids, ended: Promise.all(ended) };
  }

  close(): void {
    this.#agent.destroy();
  }

  /** Runs the calls of a limit one after another, so that their order is known. `call` gets the number of earlier ones. */
  inTurn(limit: string, call: (earlier: number) => Promise<Result>): Promise<Result> {
    const { count, last } = this.#uses.get(limit) ?? { count: 0, last: undefined };
    const result = Promise.resolve(last).then(() => call(count));
    this.#uses.set(limit, { count: count + 1, last: result });
    return result;
  }

  /** For a replica that started again. */
  forgetLimits(url: string): void {
    for (const name of this.#uses.keys()) if (name.endsWith(` ${url}`)) this.#uses.delete(name);
  }

  takeCached(user: User): Plan | undefined {
    const plan = this.#cached.get(user);
    this.#cached.delete(user);
    return plan;
  }

  keepCached(user: User, plan: Plan): void {
    this.#cached.set(user, plan);
  }

  session(user: User): string {
    return this.#sessions.get(user) ?? "";
  }

  setSession(user: User, id: string): void {
    this.#sessions.set(user, id);
  }

  async #one(kind: string, run: Kind, user: User): Promise<void> {
    const id = `v-${this.sent.length + this.failures.length}-${this.#random.int(1e9)}`;
    let clientMs = 0;
    let status: number | null = null;
    const url = this.#random.pick(this.#urls);
    const result = await run({
      id,
      url,
      random: this.#random,
      user,
      generator: this,
      call: async (call) => {
        const reply = await this.#call(url, id, call);
        clientMs = reply.ms;
        status = reply.status;
        return reply;
      },
    });
    if (status !== result.status) this.failures.push(`${kind} ${id}: expected status ${result.status}, got ${status}`);
    this.sent.push({ id, kind, clientMs, ...result });
  }

  #call(url: string, id: string, { path, headers = {}, body, leave }: Call): Promise<Reply> {
    const startedMs = performance.now();
    return new Promise((resolve, reject) => {
      const done = (status: number | null, text: string): void =>
        resolve({ status, text, ms: performance.now() - startedMs });
      const request = httpRequest(`${url}${path}`, {
        agent: leave === undefined ? this.#agent : false,
        method: body === undefined ? "GET" : "POST",
        headers: {
          "x-request-id": id,
          ...(body === undefined ? {} : { "content-type": "application/json" }),
          ...headers,
        },
      });
      let head: IncomingMessage | undefined;
      let text = "";
      request.on("response", (response) => {
        head = response;
        if (leave === "head") request.destroy();
        const session = response.headers["mcp-session-id"];
        if (typeof session === "string") text = `${session}\n`;
        response.on("data", (chunk: Buffer) => {
          text += chunk.toString();
          if (leave === "after") request.destroy();
        });
        response.on("end", () => done(response.statusCode ?? null, text));
        response.on("error", () => done(response.statusCode ?? null, text));
        response.on("close", () => done(response.statusCode ?? null, text));
      });
      request.on("error", (error) => {
        if (head !== undefined || leave !== undefined) done(head?.statusCode ?? null, text);
        else reject(error);
      });
      request.end(body === undefined ? undefined : JSON.stringify(body));
      if (leave === "before") void this.servers.arrived(id).then(() => request.destroy());
    });
  }
}

const plain =
  (
    route: string,
    action: string,
    status: number | null,
    outcome: Sent["outcome"],
    attempts?: number,
    leave?: "before" | "after",
  ): Kind =>
  async ({ id, call }) => {
    await call({ path: `/${route}/x?id=${id}&do=${action}`, leave });
    return { route, status, outcome, ...(attempts === undefined ? {} : { attempts }) };
  };

/** Each replica admits the first calls of the route. */
const limited: Kind = ({ id, url, call, generator }) =>
  generator.inTurn(`limited ${url}`, async (earlier) => {
    await call({ path: `/limited/x?id=${id}` });
    const isAdmitted = earlier < LIMITED;
    return { route: "limited", status: isAdmitted ? 200 : 429, outcome: isAdmitted ? "ok" : "rejected" };
  });

const bearer = (user: User): Record<string, string> => ({ authorization: `Bearer ${keyOf(user)}` });

interface Chat {
  readonly route?: string;
  readonly status?: number | null;
  readonly outcome?: Sent["outcome"];
  readonly first?: Behavior;
  readonly second?: Behavior;
  readonly model?: string;
  readonly stream?: boolean;
  readonly text?: string;
  readonly leave?: "before" | "after";
  /** `none` if the provider used none, and `unknown` if the gateway estimates them. */
  readonly tokens?: "none" | "unknown";
  readonly served?: "alpha" | "beta" | "none";
  readonly attempts?: number;
  readonly withoutKey?: boolean;
  readonly endpoint?: "embeddings";
}

const chat =
  (chatOptions: Chat): Kind =>
  async ({ id, random, user, call }) => {
    const { route = "llm", status = 200, outcome = "ok", first, second, text, stream, endpoint } = chatOptions;
    const input = 1 + random.int(2000);
    const output = endpoint === undefined ? 1 + random.int(500) : 0;
    const plan: Plan = {
      id,
      input,
      output,
      ...(first === undefined ? {} : { first }),
      ...(second === undefined ? {} : { second }),
      ...(text === undefined ? {} : { text }),
    };
    const model = chatOptions.model ?? "alpha";
    await call({
      path: `/${route}/v1/${endpoint ?? "chat/completions"}`,
      headers: chatOptions.withoutKey === true ? {} : bearer(user),
      body:
        endpoint === undefined
          ? { ...chatBody(model, plan), ...(stream === true ? { stream } : {}) }
          : { model, input: JSON.stringify(plan) },
      leave: chatOptions.leave,
    });
    const served = chatOptions.served ?? "alpha";
    const rates = RATES[served];
    const used: readonly [number, number] = chatOptions.tokens === "none" ? [0, 0] : [input, output];
    const isKnown = chatOptions.tokens !== "unknown";
    return {
      route,
      status,
      outcome,
      ...(chatOptions.withoutKey === true ? {} : { user }),
      ...(served === "none" ? {} : { model: served }),
      tokens: isKnown ? used : undefined,
      costNano: isKnown && rates ? 1000 * (used[0] * rates.input + used[1] * rates.output) : isKnown ? 0 : undefined,
      ...(chatOptions.attempts === undefined ? {} : { attempts: chatOptions.attempts }),
    };
  };

/** The first call uses up the limit, which is one of each replica or of all. */
const exhausted =
  (route: string, isShared: boolean): Kind =>
  (run) =>
    run.generator.inTurn(isShared ? route : `${route} ${run.url}`, (earlier) =>
      earlier === 0
        ? chat({ route })(run)
        : chat({ route, status: 429, outcome: "rejected", tokens: "none", served: "none" })(run),
    );

/** Each answer that was stored is asked for once more. */
const cached: Kind = async (run) => {
  const { generator, user } = run;
  const known = generator.takeCached(user);
  const plan = known ?? { id: run.id, input: 1 + run.random.int(2000), output: 1 + run.random.int(500) };
  await run.call({
    path: "/llm-cached/v1/chat/completions",
    headers: bearer(user),
    body: chatBody("alpha", plan),
  });
  if (known === undefined) generator.keepCached(user, plan);
  const tokens: readonly [number, number] = known === undefined ? [plan.input, plan.output] : [0, 0];
  const costNano = 1000 * (tokens[0] + 2 * tokens[1]);
  return { route: "llm-cached", status: 200, outcome: "ok", user, model: "alpha", tokens, costNano };
};

const tool =
  (name: string, outcome: Sent["outcome"], status: number | null = 200, leave?: "head"): Kind =>
  async ({ id, user, call, random, generator }) => {
    const server = leave === undefined ? random.pick(["remote", "local"]) : "remote";
    await call({
      path: "/tools",
      headers: mcpHeaders(user, generator.session(user)),
      body: toolCall(`${server}_${name}`, id),
      leave,
    });
    return { route: "tools", status, outcome, user, tool: `${server}/${name}` };
  };

function mcpHeaders(user: User, session: string): Record<string, string> {
  return {
    ...bearer(user),
    accept: "application/json, text/event-stream",
    ...(session === "" ? {} : { "mcp-session-id": session, "mcp-protocol-version": "2025-11-25" }),
  };
}

const openSession =
  (user: User): Kind =>
  async ({ call, generator }) => {
    const { text } = await call({
      path: "/tools",
      headers: mcpHeaders(user, ""),
      body: {
        jsonrpc: "2.0",
        id: 1,
        method: "initialize",
        params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "views", version: "1" } },
      },
    });
    generator.setSession(user, text.split("\n", 1)[0] ?? "");
    return { route: "tools", status: 200, outcome: "ok", user };
  };

const sessionOpened: Kind = async ({ user, call, generator }) => {
  await call({
    path: "/tools",
    headers: mcpHeaders(user, generator.session(user)),
    body: { jsonrpc: "2.0", method: "notifications/initialized" },
  });
  return { route: "tools", status: 202, outcome: "ok", user };
};

const OPEN_CALLS: Readonly<Record<string, (id: string, user: User, generator: Generator) => Call>> = {
  plain: (id) => ({ path: `/plain/x?id=${id}&do=hang` }),
  chat: (id, user) => ({
    path: "/llm/v1/chat/completions",
    headers: bearer(user),
    body: chatBody("alpha", { id, input: 1, output: 1, first: "hang" }),
  }),
  stream: (id, user) => ({
    path: "/llm/v1/chat/completions",
    headers: bearer(user),
    body: { ...chatBody("alpha", { id, input: 1, output: 1, first: "endless" }), stream: true },
  }),
  tool: (id, user, generator) => ({
    path: "/tools",
    headers: mcpHeaders(user, generator.session(user)),
    body: toolCall("remote_wait", id),
  }),
};

function chatBody(model: string, plan: Plan): object {
  return { model, messages: [{ role: "user", content: JSON.stringify(plan) }] };
}

function toolCall(name: string, id: string): object {
  return { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name, arguments: { id } } };
}

const NO_TOKENS = { tokens: "none", served: "none" } as const;

export const KINDS: Readonly<Record<string, Kind>> = {
  httpOk: plain("plain", "ok", 200, "ok"),
  httpNotFound: plain("plain", "404", 404, "rejected"),
  httpError: plain("plain", "500", 500, "failed"),
  httpRetried: plain("plain", "flaky", 200, "ok", 2),
  httpRetriedInVain: plain("plain", "503", 503, "failed", 2),
  httpCut: plain("plain", "cut", 200, "failed"),
  httpAbortedBefore: plain("plain", "hang", null, "aborted", undefined, "before"),
  httpAbortedAfter: plain("plain", "endless", 200, "aborted", undefined, "after"),
  httpTimeout: plain("slow", "hang", 504, "failed"),
  httpDown: plain("down", "ok", 502, "failed"),
  httpDenied: plain("closed", "ok", 403, "rejected"),
  httpNoRoute: plain("nowhere", "ok", 404, "rejected"),
  httpDirect: plain("direct", "ok", 200, "ok"),
  httpMirrored: plain("mirrored", "ok", 200, "ok"),
  limited,
  toolOk: tool("echo", "ok"),
  toolError: tool("tool_error", "failed"),
  toolRpcError: tool("rpc_error", "failed"),
  toolDenied: tool("secret", "rejected"),
  toolUnknown: tool("nonsense", "rejected"),
  toolAborted: tool("wait", "aborted", 200, "head"),
  chat: chat({}),
  chatStream: chat({ stream: true }),
  embeddings: chat({ endpoint: "embeddings" }),
  chatBadRequest: chat({ first: 400, status: 400, outcome: "rejected", tokens: "none" }),
  chatFailed: chat({ first: 500, second: 500, status: 500, outcome: "failed", attempts: 2, tokens: "none" }),
  chatFailover: chat({ first: 503, served: "beta", attempts: 2 }),
  chatFailoverStream: chat({ first: 429, served: "beta", attempts: 2, stream: true }),
  chatTimeout: chat({ route: "llm-slow", first: "hang", status: 504, outcome: "failed", tokens: "unknown" }),
  chatAbortedBefore: chat({ first: "hang", status: null, outcome: "aborted", leave: "before", tokens: "unknown" }),
  chatAbortedAfter: chat({ first: "endless", stream: true, outcome: "aborted", leave: "after", tokens: "unknown" }),
  chatCut: chat({ first: "cut", stream: true, outcome: "failed", tokens: "unknown" }),
  chatNoKey: chat({ status: 401, outcome: "rejected", withoutKey: true, ...NO_TOKENS }),
  chatUnpriced: chat({ route: "llm-gamma", model: "gamma", status: 403, outcome: "rejected", ...NO_TOKENS }),
  chatUnpricedFirst: chat({ model: "gamma", served: "beta" }),
  chatUnpricedFailover: chat({
    route: "llm-unpriced",
    model: "gamma",
    first: 503,
    status: 503,
    outcome: "failed",
    tokens: "none",
  }),
  chatGuarded: chat({ text: "forbidden-question", status: 403, outcome: "rejected", ...NO_TOKENS }),
  chatAnswerGuarded: chat({ text: "forbidden-answer", status: 403, outcome: "rejected" }),
  chatAnswerGuardedStream: chat({ text: "forbidden-answer", stream: true, outcome: "rejected", tokens: "unknown" }),
  chatCached: cached,
  chatCapped: exhausted("llm-capped", false),
  chatPoor: exhausted("llm-poor", true),
};
