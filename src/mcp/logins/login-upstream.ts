/**
 * Implements the upstream of a server that requires a separate login. Until the user has connected an account, it
 * offers one tool that returns the connect URL.
 */
import { personDescription } from "../../core/principal.ts";
import type { WireTap } from "../../core/wire.ts";
import { discoverResult } from "../aggregation/aggregate-subscription.ts";
import { GATEWAY_INFO } from "../aggregation/merge-responses.ts";
import { LISTS } from "../protocol/access.ts";
import {
  type Call,
  type CallHandle,
  forwardedCall,
  isLoginRequired,
  LateCall,
  LOGIN_REQUIRED,
  serverFailure,
} from "../protocol/call.ts";
import { asServerMessage, notificationText, resultText } from "../protocol/json-rpc.ts";
import { type McpProtocol, VERSIONS_2026 } from "../protocol/protocol-version.ts";
import { asResult2026 } from "../server-side/envelope-2026.ts";
import {
  type ConnectionLoss,
  type OpenOutcome,
  type ServerAbout,
  type Upstream,
  type UpstreamListener,
  UpstreamWrapper,
} from "../server-side/upstream.ts";
import type { ServerLogin } from "./server-login.ts";

/** This code asks the client to open the given URLs and to try again (2025-11-25). */
const URL_ELICITATION_REQUIRED = -32042;
export const CONNECT_TOOL = "connect";

const CAPABILITIES = { tools: { listChanged: true }, prompts: { listChanged: true }, resources: { listChanged: true } };

export interface LoginUpstreamOptions {
  readonly login: ServerLogin;
  readonly principal: string;
  readonly protocol: McpProtocol;
  readonly version: string;
}

export interface Bearer {
  token: string | undefined;
}

export class LoginUpstream extends UpstreamWrapper {
  readonly #env: LoginUpstreamOptions;
  readonly #bearer: Bearer;
  readonly #unwatch: () => void;
  #opening: Promise<OpenOutcome> | undefined = undefined;
  #about: ServerAbout | undefined = undefined;
  #wasOffered = false;

  constructor(
    env: LoginUpstreamOptions,
    user: UpstreamListener,
    make: (user: UpstreamListener, bearer: Bearer) => Upstream,
  ) {
    const bearer: Bearer = { token: undefined };
    super(user, (own) => make(own, bearer));
    this.#env = env;
    this.#bearer = bearer;
    this.#unwatch = env.login.watch(env.principal, () => this.#connected());
  }

  override get about(): ServerAbout | undefined {
    return this.inner.about ?? this.#about;
  }

  open(done: (outcome: OpenOutcome) => void, wire?: WireTap): void {
    void this.#ready(undefined, wire).then(
      (outcome) => done(outcome === undefined || lacksLogin(outcome) ? this.#offered() : outcome),
      (error: unknown) => done({ ok: false, reason: errorReason(error), error: "backend_unavailable" }),
    );
  }

  call(call: Call): CallHandle {
    const running = new LateCall();
    const attempt = async (refused: string | undefined): Promise<void> => {
      const outcome = await this.#ready(refused, call.wire);
      if (running.isCancelled) return;
      if (outcome === undefined || lacksLogin(outcome)) {
        await this.#invite(call);
        return;
      }
      if (!outcome.ok) {
        const reason = outcome.answer ? "refused to initialize" : outcome.reason;
        call.failed(
          serverFailure(`target "${this.target.name}" ${reason}`, outcome.answer ? undefined : outcome.error),
        );
        return;
      }
      const { token } = this.#bearer;
      running.current = this.inner.call(
        forwardedCall(call, {
          failed: (failure) => {
            // The server did not process the request, so it is retried once with a new token.
            if (!isLoginRequired(failure.error)) call.failed(failure);
            else if (refused === undefined && token !== undefined) retry(token);
            else void this.#invite(call).catch(fail);
          },
        }),
      );
    };
    const fail = (error: unknown): void =>
      call.failed(serverFailure(`target "${this.target.name}": ${errorReason(error)}`));
    const retry = (token: string): void => void attempt(token).catch(fail);
    void attempt(undefined).catch(fail);
    return running;
  }

  override reconnect(): void {
    if (this.#bearer.token !== undefined) this.inner.reconnect();
  }

  override close(): Promise<void> {
    this.#unwatch();
    return this.inner.close();
  }

  override detail(): Record<string, unknown> {
    return { ...this.inner.detail(), connected: this.#bearer.token !== undefined };
  }

  override lost(inner: Upstream, loss: ConnectionLoss): void {
    if (!isLoginRequired(loss.error)) super.lost(inner, loss);
  }

  /** Opens the server with the user's token. Resolves with undefined if the user has none. */
  async #ready(refused: string | undefined, wire: WireTap | undefined): Promise<OpenOutcome | undefined> {
    const token = await this.#env.login.token(this.#env.principal, refused);
    this.#bearer.token = token;
    if (token === undefined) return undefined;
    this.#opening ??= new Promise<OpenOutcome>((resolve) => this.inner.open(resolve, wire));
    const outcome = await this.#opening;
    if (!outcome.ok) this.#opening = undefined;
    if (outcome.ok || refused !== undefined || !lacksLogin(outcome)) return outcome;
    return this.#ready(token, wire);
  }

  #offered(): OpenOutcome {
    this.#wasOffered = true;
    this.#about = {
      protocolVersion: this.#env.version,
      capabilities: CAPABILITIES,
      serverInfo: GATEWAY_INFO,
      instructions: undefined,
    };
    const { protocolVersion, capabilities, serverInfo } = this.#about;
    const answer = asServerMessage(resultText("0", JSON.stringify({ protocolVersion, capabilities, serverInfo })));
    return { ok: true, answer, about: this.#about };
  }

  #connected(): void {
    if (!this.#wasOffered) return;
    this.#wasOffered = false;
    for (const kind of Object.keys(CAPABILITIES))
      this.user.notified(this, asServerMessage(notificationText(`notifications/${kind}/list_changed`, "{}")));
  }

  async #invite(call: Call): Promise<void> {
    this.#wasOffered = true;
    const { method, params } = call.request;
    const { name } = this.target;
    if (method === "server/discover") return this.#answer(call, discoverResult(CAPABILITIES, undefined, VERSIONS_2026));
    if (method === "ping" || method === "logging/setLevel") return this.#answer(call, "{}");
    if (method === "tools/list") return this.#answer(call, JSON.stringify({ tools: [connectTool(name)] }));
    const list = LISTS[method];
    if (list) return this.#answer(call, JSON.stringify({ [list.member]: [] }));
    const { principal, login } = this.#env;
    const url = await login.invite(principal, personDescription(call.caller ?? {}, principal));
    const message = `Connect your ${name} account: open ${url} in a browser, then try again.`;
    if (method === "tools/call" && params.name === CONNECT_TOOL)
      return this.#answer(call, JSON.stringify({ content: [{ type: "text", text: message }] }));
    const elicitationId = url.slice(url.indexOf("ticket=") + 7);
    call.failed({
      code: URL_ELICITATION_REQUIRED,
      status: 200,
      message,
      data: { elicitations: [{ mode: "url", elicitationId, url, message: `Connect your ${name} account.` }] },
      error: LOGIN_REQUIRED,
      detail: `target "${name}": the user has not connected an account`,
    });
  }

  #answer(call: Call, result: string): void {
    const message = asServerMessage(resultText("0", result));
    call.answered(this.#env.protocol === "2026" ? asResult2026(message, call.request.method, GATEWAY_INFO) : message);
  }
}

function connectTool(target: string): object {
  return {
    name: CONNECT_TOOL,
    description: `Returns the address where the user connects the ${target} account. Its tools are available after that.`,
    inputSchema: { type: "object", properties: {} },
    annotations: { readOnlyHint: true },
  };
}

function lacksLogin(outcome: OpenOutcome): boolean {
  return !outcome.ok && outcome.answer === undefined && isLoginRequired(outcome.error);
}

function errorReason(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
