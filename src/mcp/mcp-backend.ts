/**
 * Implements the `mcp` backend, which serves MCP servers behind one endpoint to clients of all protocol versions. It
 * parses the request, finds or opens the session, runs the request, and reports its outcome to the exchange, the records,
 * and the metrics. With the HTTP+SSE transport, the exchange of a message ends before its response is sent, so a failure
 * is logged instead. `backend.ts` loads this file on demand.
 */
import { peerInput } from "../base/peer-inputs.ts";
import type { Backend, BackendEnv, BackendRun, PreparedCall, ResponseReceiver } from "../core/backend.ts";
import type { CelAttributes } from "../core/cel-attributes.ts";
import type { ErrorCode } from "../core/errors.ts";
import type { Exchange } from "../core/exchange.ts";
import { type CalledTool, revealArguments } from "../core/mcp-arguments.ts";
import type { Reply } from "../core/reply.ts";
import type { McpAttributes } from "../core/request-attributes.ts";
import { HeaderList } from "../http/headers.ts";
import { foldRepeats, type Logger } from "../record/log/logger.ts";
import { redactArguments, redactUrl } from "../record/trace/redact.ts";
import type { Names } from "./aggregation/names.ts";
import { sendJson } from "./aggregation/router.ts";
import { unwrapped, unwrappedCall, unwrappedMessage } from "./aggregation/tool-search.ts";
import type { CompiledTargets } from "./backend-state.ts";
import { type CallerIdentity, callerIdentity } from "./caller-identity.ts";
import {
  ANY_HOST,
  type ClientAction,
  type ClientMessages,
  checkNotifications,
  checkRetained,
  guardOrigin,
  is2026,
  isBatch,
  isOldTransport,
  other2025,
  post2025,
  post2026,
  RequestRejection,
  readMessages,
  statelessOther,
  statelessPost,
  trustedHosts,
} from "./client-side/http-request.ts";
import { ownResult } from "./client-side/sessionless-call.ts";
import { requireStream, singleMessage } from "./client-side/sse-request.ts";
import { compileToolSettingsByTarget, requestSigners, serverLogins, withResolvedPath } from "./compile-targets.ts";
import { Hub } from "./hub.ts";
import { type LoginRelay, loginRelay, RelayedCall } from "./login-relay.ts";
import { createAccounts } from "./logins/accounts.ts";
import { serverUrl } from "./openapi/api.ts";
import { addressedItem } from "./protocol/access.ts";
import type { GuardReporter, RoutedTarget, ShadowReporter } from "./protocol/call.ts";
import { type ClientMessage, type ClientRequest, INVALID_REQUEST, resultText } from "./protocol/json-rpc.ts";
import { type CountedBackends, createMcpMetrics, type McpMetrics } from "./server-side/mcp-metrics.ts";
import type { McpConfig } from "./server-side/target-config.ts";
import { sessionOwner } from "./session/client-group.ts";
import { KEEP_ALIVE_MS } from "./session/event-stream.ts";
import type { Session } from "./session/session.ts";
import { type CallOutcome, type CallReport, SUCCEEDED } from "./session/session-calls.ts";
import { inspectTargets, withheldTargets } from "./tools/inspect-tools.ts";

const MESSAGE = peerInput("client/mcp-message");

/** The value 0 disables the timeout per request. Connections to servers apply `requestTimeout` instead. */
const DEFAULT_TIMEOUT_MS = 0;

const OWN_ACTIONS: ReadonlySet<ClientAction["kind"]> = new Set([
  "listen",
  "delete",
  "openStream",
  "ignored",
  "endedElsewhere",
]);

export function compileMcp(config: McpConfig, env: BackendEnv): Backend {
  const resolved: McpConfig = { ...config, targets: config.targets.map((target) => withResolvedPath(target, env)) };
  const relay = loginRelay(resolved, env);
  const identity = callerIdentity(resolved, env);
  const parts = {
    toolSettings: compileToolSettingsByTarget(resolved, env),
    logins: serverLogins(resolved, env),
    signers: requestSigners(resolved, env),
    relaysLogin: relay !== undefined,
  };
  const hub = env.acquire(
    `mcp ${env.name}`,
    "hub",
    () => new Hub(resolved, parts, { ...env, logger: foldRepeats(env.logger.for("mcp"), env.clock) }),
    (living) => living.close(),
    (living) => living.retire(),
  );
  env.serving(() => hub.serve(resolved, parts, env.tls));
  const counted = env.acquireShared("mcp backends", (): CountedBackends => new Set());
  counted.add(hub);
  hub.closed = () => counted.delete(hub);
  return createBackend(resolved, hub, createMcpMetrics(env.metrics, env.name, counted), env, {
    ...parts,
    relay,
    identity,
  });
}

interface BackendParts {
  readonly relay: LoginRelay | undefined;
  readonly identity: CallerIdentity | undefined;
  readonly logins: CompiledTargets["logins"];
}

function createBackend(
  config: McpConfig,
  hub: Hub,
  metrics: McpMetrics,
  env: BackendEnv,
  { relay, identity, logins }: BackendParts,
): Backend {
  const trusted = env.requiresCredential ? ANY_HOST : trustedHosts([...config.allowedHosts, ...env.trustedHosts]);
  const reports: ReportServices = { metrics, logger: env.logger.for("mcp"), names: () => hub.names };

  const isStateless = ({ headers }: Exchange["request"]): boolean =>
    config.statefulMode === "stateless" && !headers.has("mcp-session-id");

  /** Sets the attributes that rules read. A session may use the names from before a reload. */
  function note(exchange: Exchange, parsed: ClientMessages | undefined, session: Session | undefined): void {
    const message = parsed === undefined || isBatch(parsed) ? undefined : parsed;
    const sessionId = exchange.request.headers.get("mcp-session-id");
    const names = session?.names ?? hub.names;
    const attributes = mcpAttributes(message, sessionId, names);
    exchange.attributes.mcp = attributes;
    exchange.mcp.isBatch = parsed !== undefined && isBatch(parsed);
    exchange.mcp.calledTool = calledTool(message, attributes);
    if ((exchange.mcp.isJudged || exchange.mcp.isWatched) && parsed !== undefined && isBatch(parsed))
      exchange.mcp.batch = parsed.map((one) => {
        const own = mcpAttributes(one, sessionId, names);
        revealArguments(calledTool(one, own), own.tool);
        return own;
      });
  }

  function actionOf(exchange: Exchange, parsed: ClientMessages): ClientAction {
    const { request } = exchange;
    if (isOldTransport(request)) {
      const session = requireStream(request, (id) => hub.sessions.findStream(id, sessionOwner(exchange)));
      const message = singleMessage(parsed);
      // A second handshake would replace the running servers.
      if (message.kind === "request" && message.method === "initialize" && session.upstreams.length > 0)
        throw new RequestRejection(400, INVALID_REQUEST, "Invalid Request: this session is already initialized", {
          id: message.id,
        });
      return { kind: "streamMessage", session, message };
    }
    if (!is2026(request, parsed))
      return isStateless(request) ? statelessPost(parsed) : post2025(request, parsed, finder(hub, exchange));
    const accepted = post2026(request, parsed);
    return accepted ? { kind: "2026", request: accepted } : { kind: "ignored" };
  }

  function understand(exchange: Exchange, parsed: ClientMessages): ClientAction | Promise<ClientAction> {
    const { access, guardrails, isJudged } = exchange.mcp;
    if (access !== undefined || guardrails !== undefined || isJudged) checkNotifications(parsed);
    const session = findSession(hub, exchange);
    // With tool search, the attributes describe the called tool instead of `call_tool`.
    note(exchange, config.toolMode === "all" ? parsed : unwrapped(parsed), session);
    const toAction = (): ClientAction => {
      const action = checkRetained(actionOf(exchange, parsed), config.maxInitializeBytes);
      return config.toolMode === "all" ? action : unwrappedAction(action);
    };
    const isElsewhere = session === undefined && !isOldTransport(exchange.request) && !is2026(exchange.request, parsed);
    return isElsewhere ? resumed(exchange, parsed, toAction) : toAction();
  }

  function understandOther(exchange: Exchange): ClientAction | Promise<ClientAction> {
    const { request } = exchange;
    const session = findSession(hub, exchange);
    note(exchange, undefined, session);
    if (isOldTransport(request)) return { kind: "openStream" };
    if (isStateless(request)) statelessOther(request);
    const toAction = (): ClientAction => other2025(request, finder(hub, exchange));
    const isElsewhere = session === undefined && (request.method === "GET" || request.method === "DELETE");
    return isElsewhere ? resumed(exchange, undefined, toAction) : toAction();
  }

  /** Resumes a session that this process does not have, because another replica opened it or the gateway restarted. */
  function resumed(
    exchange: Exchange,
    parsed: ClientMessages | undefined,
    toAction: () => ClientAction,
  ): ClientAction | Promise<ClientAction> {
    const id = exchange.request.headers.get("mcp-session-id");
    if (id === undefined) return toAction();
    return hub.resumption.prepare(exchange, id, hub.clientOf(exchange), parsed).then((action) => action ?? toAction());
  }

  function read(exchange: Exchange): ClientAction | Promise<ClientAction> {
    if (exchange.request.method !== "POST") return understandOther(exchange);
    const parsed = readMessages(exchange, MESSAGE.upTo(config.maxRequestBytes));
    return parsed instanceof Promise
      ? parsed.then((messages) => understand(exchange, messages))
      : understand(exchange, parsed);
  }

  const prepared = (exchange: Exchange, action: ClientAction): PreparedCall => ({
    call(receiver) {
      const method = exchange.attributes.mcp?.methodName;
      if (method !== undefined) metrics.request(method);
      if (OWN_ACTIONS.has(action.kind)) receiver.attempt(`internal:${env.name}`);
      const relayed = relay && new RelayedCall(receiver, (text) => relay.challenge(text, exchange));
      return runAction(hub, action, exchange, relayed ?? receiver, reports);
    },
  });

  return {
    attributes: { name: env.name, type: "mcp", protocol: "mcp" },
    defaultTimeoutMs: DEFAULT_TIMEOUT_MS,
    parsesBody: true,

    prepare(exchange) {
      const login = relay?.answer(exchange);
      if (login !== undefined) return login;
      guardOrigin(exchange, trusted);
      try {
        const action = identity ? identity.attach(exchange).then(() => read(exchange)) : read(exchange);
        if (!(action instanceof Promise)) return prepared(exchange, action);
        return action.then(
          (late) => prepared(exchange, late),
          (error: unknown) => asReply(exchange, error, relay),
        );
      } catch (error) {
        return asReply(exchange, error, relay);
      }
    },

    mcp: {
      drain: () => hub.sessions.drain(),
      hasSuspendedCalls: () => hub.suspendedCalls > 0,
      inspect: (only) => inspectTargets(hub.inspection(), only),
      withheld: () => withheldTargets(hub.inspection()),
      ...(config.toolsLock === undefined || env.machine === undefined
        ? {}
        : { lockFile: env.machine.resolvePath(config.toolsLock) }),
      endSession: (shown) => hub.sessions.endShown(shown),
      ...(logins.size === 0 ? {} : { accounts: createAccounts([...logins.values()], env) }),
    },

    describe: () => ({
      targets: config.targets.map(({ name, stdio, mcp: http, sse, openapi, shared }) => ({
        name,
        ...(stdio ? { stdio: { cmd: stdio.cmd, args: redactArguments(stdio.args), env: Object.keys(stdio.env) } } : {}),
        ...(http ? { mcp: { url: redactUrl(http.url) } } : {}),
        ...(sse ? { sse: { url: redactUrl(sse.url) } } : {}),
        ...(openapi ? { openapi: { server: redactUrl(serverUrl(openapi)) } } : {}),
        ...(shared ? { shared } : {}),
      })),
      prefixMode: config.prefixMode,
      failureMode: config.failureMode,
      ...(config.toolsLock === undefined ? {} : { toolsLock: config.toolsLock }),
      sessions: hub.sessions.size,
      children: hub.children,
    }),
  };
}

function finder(hub: Hub, exchange: Exchange): { find(id: string): Session | undefined } {
  return { find: (id) => hub.sessions.find(id, sessionOwner(exchange)) };
}

function findSession(hub: Hub, exchange: Exchange): Session | undefined {
  const id = exchange.request.headers.get("mcp-session-id");
  return id === undefined ? undefined : finder(hub, exchange).find(id);
}

function unwrappedAction(action: ClientAction): ClientAction {
  switch (action.kind) {
    case "requests":
      return { ...action, requests: action.requests.map(unwrappedCall) };
    case "streamMessage":
      return { ...action, message: unwrappedMessage(action.message) };
    case "2026":
      return { ...action, request: unwrappedCall(action.request) };
    default:
      return action;
  }
}

const TOLERANCE_MS = 60_000;
const NO_RUN: BackendRun = { abort: () => undefined, resume: () => undefined };

function runAction(
  hub: Hub,
  action: ClientAction,
  exchange: Exchange,
  call: ResponseReceiver,
  reports: ReportServices,
): BackendRun {
  const { headers } = exchange.request;
  const forwarded = hub.wantsHeaders ? headers : undefined;
  const report = new RequestReport(reports, exchange, call, action.kind === "streamMessage");
  // A relayed login challenge must be in the response head, so the head is sent later.
  const primeAfterMs = call instanceof RelayedCall ? KEEP_ALIVE_MS : undefined;
  const { access, guardrails } = exchange.mcp;
  const context = { access, guardrails, headers: forwarded, report, wire: call, primeAfterMs };
  switch (action.kind) {
    case "initialize":
      return hub.initialize(action.request, exchange, call, report);
    case "requests":
      for (const message of action.notes) pass(action.session, message, call);
      return action.session.calls.request(action.requests, call, context);
    case "notes":
      for (const message of action.notes) pass(action.session, message, call);
      return empty(call, 202);
    case "listen":
      return action.session.listen(call, action.after, tokenLifeMs(exchange));
    case "delete":
      action.session.end("the client ended it");
      return empty(call, 204);
    case "endedElsewhere":
      return empty(call, 204);
    case "openStream":
      return hub.openStream(exchange, call);
    case "streamMessage":
      if (action.message.kind !== "request") pass(action.session, action.message, call);
      else if (action.message.method === "initialize")
        hub.initializeStream(action.session, action.message, headers, report, call, guardrails);
      else action.session.calls.requestOnStream(action.message, context);
      return empty(call, 202);
    case "2026":
      return hub.serve2026(action.request, exchange, call, report);
    case "stateless": {
      const own = ownResult(action.request);
      if (own === undefined) return hub.serveStateless(action.request, exchange, call, report);
      report.ended(action.request, undefined, SUCCEEDED);
      sendJson(call, 200, resultText(action.request.id, own));
      return NO_RUN;
    }
    case "ignored":
      return empty(call, 202);
  }
}

function pass(session: Session, message: Exclude<ClientMessage, { kind: "request" }>, wire: ResponseReceiver): void {
  if (message.kind === "notification") session.notify(message, wire);
  else session.respond(message, wire);
}

function empty(call: ResponseReceiver, status: number): BackendRun {
  call.head(status, new HeaderList());
  call.end();
  return NO_RUN;
}

function tokenLifeMs({ attributes, startedAt }: Exchange): number | undefined {
  const exp = attributes.jwt?.exp;
  return typeof exp === "number" ? exp * 1000 + TOLERANCE_MS - startedAt : undefined;
}

const REFUSALS: Readonly<Record<number, ErrorCode>> = {
  404: "not_found",
  405: "method_not_allowed",
  413: "body_too_large",
  415: "unsupported_media_type",
  503: "overloaded",
};

function asReply(exchange: Exchange, error: unknown, relay: LoginRelay | undefined): Reply {
  if (!(error instanceof RequestRejection)) throw error;
  const challenge = error.reply.headers.get("www-authenticate");
  if (challenge !== undefined && relay)
    error.reply.headers.set("www-authenticate", relay.challenge(challenge, exchange));
  const code = error.failure ?? REFUSALS[error.reply.status] ?? "bad_request";
  exchange.failure ??= {
    code,
    source: error.failure ? "upstream" : code === "overloaded" ? "gateway" : "client",
    message: error.message,
    detail: undefined,
  };
  error.reply.headers.set("x-gateway-error", code);
  return error.reply;
}

interface ReportServices {
  readonly metrics: McpMetrics;
  readonly logger: Logger;
  names(): Names;
}

class RequestReport implements CallReport {
  readonly #env: ReportServices;
  readonly #exchange: Exchange;
  readonly #call: ResponseReceiver;
  readonly #isOldTransport: boolean;

  constructor(env: ReportServices, exchange: Exchange, call: ResponseReceiver, isOldTransport: boolean) {
    this.#env = env;
    this.#exchange = exchange;
    this.#call = call;
    this.#isOldTransport = isOldTransport;
  }

  get caller(): CelAttributes {
    return this.#exchange.celAttributes;
  }

  get watched(): ShadowReporter {
    const exchange = this.#exchange;
    if (this.#isOldTransport) exchange.shadow.isPending = true;
    // Rate limits counted the call before a guard could reject its result.
    return (detail, rule) => exchange.deniedInShadow("mcp", detail, { rule, isCounted: true });
  }

  get guarded(): GuardReporter {
    const { trace } = this.#exchange;
    return (result, guard) => {
      const severity = result === "rejected" ? "warn" : "info";
      trace?.point({ type: "policyEvent", kind: guard, details: { result } }, severity);
    };
  }

  ended(
    request: ClientRequest,
    routed: RoutedTarget | undefined,
    { kind, problem }: CallOutcome,
    answer?: string,
  ): void {
    const exchange = this.#exchange;
    const { metrics, logger, names } = this.#env;
    const attributes = exchange.attributes.mcp;
    // The attributes of a batch do not describe its individual messages.
    const own = attributes?.methodName === undefined ? mcpAttributes(request, undefined, names()) : attributes;
    const target = routed?.name ?? own.tool?.target ?? own.target ?? "";
    exchange.records.audit?.ended(request.id, target, kind, answer);
    metrics.result(target, own.tool?.name ?? "", kind);
    if (attributes) {
      if (target !== "") attributes.target ??= target;
      if (attributes.outcome === undefined || attributes.outcome === "ok") attributes.outcome = kind;
    }
    if (problem === undefined) return;
    if (!this.#isOldTransport) this.#call.problem(problem);
    else
      logger.info("MCP request failed", {
        id: exchange.id,
        "mcp.method": request.method,
        "mcp.target": target,
        "mcp.tool": own.tool?.name,
        "mcp.outcome": kind,
        error: problem.code,
        reason: problem.reason.slice(0, 500),
      });
  }
}

function mcpAttributes(message: ClientMessage | undefined, sessionId: string | undefined, names: Names): McpAttributes {
  const attributes: McpAttributes = {};
  if (sessionId !== undefined) attributes.sessionId = sessionId;
  if (message === undefined || message.kind === "response") return attributes;
  attributes.methodName = message.method;
  const only = names.targets.length === 1 ? names.targets[0] : undefined;
  if (only !== undefined) attributes.target = only;
  const about = message.kind === "request" ? addressedItem(message) : undefined;
  if (about === undefined) return attributes;
  const found = names.isPrefixed ? names.inward(about.kind, about.name) : { target: only ?? "", name: about.name };
  if (found === undefined) return attributes;
  const { target, name } = found;
  if (target !== "") attributes.target = target;
  if (about.kind === "tool") attributes.tool = { name, target };
  else if (about.kind === "prompt") attributes.prompt = { name, target };
  else attributes.resource = { uri: name, target };
  return attributes;
}

function calledTool(message: ClientMessage | undefined, { tool }: McpAttributes): CalledTool | undefined {
  if (tool === undefined || message?.kind !== "request") return undefined;
  return { attributes: tool, args: message.params.arguments };
}
