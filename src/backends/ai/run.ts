/**
 * One LLM call: the targets in their order, the next one when a target cannot be reached, is overloaded (429) or
 * fails (5xx), as long as nothing has reached the client. A target that cannot be asked in the client's words is
 * passed over; the last answer is the client's, whatever it is. Redirects are never followed: a key must not go where
 * an answer points.
 */
import type { BackendCall, BackendRun } from "../../core/backend.ts";
import { GatewayError } from "../../core/errors.ts";
import type { Exchange } from "../../core/exchange.ts";
import { HeaderList } from "../../lib/headers.ts";
import { type HttpCall, HttpClientError } from "../../lib/http-client.ts";
import type { Logger } from "../../lib/logger.ts";
import { errorBody, type LlmError } from "../../llm/error-shape.ts";
import { estimateRequestTokens } from "../../llm/estimate-request.ts";
import type { Members } from "../../llm/json.ts";
import type { LlmCall } from "../../llm/llm-call.ts";
import type { TapReport } from "../../llm/usage-tap.ts";
import { doubt, MISSING_AWS_KEYS } from "./credential.ts";
import type { Candidate } from "./model-table.ts";
import { type Answer, NativeAnswer } from "./native-answer.ts";
import { CredentialError } from "./renewed.ts";
import type { Settlement } from "./settlement.ts";
import { TargetQueue } from "./target-queue.ts";
import { TranslatedAnswer } from "./translated-answer.ts";
import { type PlanEnv, type UpstreamPlan, upstreamRequest } from "./upstream-request.ts";

export interface RunEnv extends PlanEnv {
  readonly logger: Logger;
}

/** The provider was asked and reads the prompt, whether anybody waits for its answer or not: the question is charged. */
const NOTHING_HEARD: TapReport = { usage: undefined, responseModel: undefined, uncountedTokens: 0, complete: false };

export class AiRun implements BackendRun {
  readonly #env: RunEnv;
  readonly #exchange: Exchange;
  readonly #call: BackendCall;
  readonly #llm: LlmCall;
  readonly #targets: TargetQueue;
  readonly #settlement: Settlement;
  #http: HttpCall | undefined;
  #answer: Answer | undefined;
  #over = false;

  constructor(
    env: RunEnv,
    exchange: Exchange,
    call: BackendCall,
    llm: LlmCall,
    candidates: readonly Candidate[],
    settlement: Settlement,
  ) {
    this.#env = env;
    this.#exchange = exchange;
    this.#call = call;
    this.#llm = llm;
    this.#targets = new TargetQueue(llm, exchange.request.query, candidates, env);
    this.#settlement = settlement;
  }

  start(): void {
    if (this.#over) return;
    try {
      const planned = this.#targets.take();
      if (planned === undefined) {
        if (this.#targets.refusal) this.#refuse(this.#targets.refusal);
        return;
      }
      const { candidate, plan } = planned;
      const facts = this.#exchange.facts.llm;
      if (facts) facts.provider = candidate.target.provider.name;
      this.#settlement.asks(candidate.model);
      if (plan === undefined) this.#reply(200, { input_tokens: estimateRequestTokens(this.#llm.bytes) });
      else this.#send(candidate, plan);
    } catch (error) {
      this.#fail(error);
    }
  }

  abort(): void {
    if (this.#over) return;
    this.#over = true;
    this.#http?.abort();
    if (this.#answer) this.#answer.abort();
    else if (this.#http) this.#settlement.counted(NOTHING_HEARD);
    else this.#settlement.nothing("aborted");
  }

  resume(): void {
    this.#http?.resume();
  }

  #send(candidate: Candidate, plan: UpstreamPlan): void {
    const { target } = candidate;
    const request = upstreamRequest(this.#exchange, plan, candidate);
    const { protocol, host, port } = target.address;
    const { method, path, headers } = request;
    const sealing = target.seal?.({ method, protocol, hostname: host, port, path, headers, body: plan.body });
    if (sealing === undefined) this.#dispatch(candidate, plan, request);
    else
      sealing
        .then(() => {
          if (!this.#over) this.#dispatch(candidate, plan, request);
        })
        .catch((error) => {
          if (error instanceof CredentialError) this.#withoutCredential(candidate, error);
          else this.#fail(error);
        });
  }

  /** The next target may have a credential that works. */
  #withoutCredential({ target }: Candidate, error: CredentialError): void {
    if (this.#over) return;
    if (this.#hasNext) {
      this.#env.logger.warn("trying the next target", {
        target: target.name,
        reason: error.message,
        request: this.#exchange.id,
      });
      this.start();
      return;
    }
    const said = { status: 503, message: error.message, code: "provider_credential_unavailable" };
    this.#refuse(said, { "retry-after": String(error.retryAfterSeconds) });
  }

  #dispatch(candidate: Candidate, plan: UpstreamPlan, request: ReturnType<typeof upstreamRequest>): void {
    const { target } = candidate;
    const needsKey = target.provider.credential === "aws" && target.credential.kind === "client";
    if (needsKey && !request.headers.has("authorization")) {
      this.#refuse(MISSING_AWS_KEYS);
      return;
    }
    this.#call.attempt(target.display);
    let answer: Answer | undefined;
    let given = false;
    const giveUp = (reason: string, retryAfterSeconds?: number): void => {
      given = true;
      this.#http = undefined;
      target.health.failed(retryAfterSeconds);
      this.#env.logger.warn("trying the next target", { target: target.name, reason, request: this.#exchange.id });
      this.start();
    };
    const http = target.upstream.send(request, {
      head: (status, headers) => {
        if (given || this.#over) return;
        if (isFailure(status)) {
          if (this.#hasNext) {
            // Before the abort, which reports an error at once: one failure must not be given up twice.
            given = true;
            http.abort();
            giveUp(`status ${status}`, retryAfter(headers));
            return;
          }
          target.health.failed(retryAfter(headers));
        } else target.health.worked();
        if (status >= 300 && status < 400) {
          given = true;
          http.abort();
          this.#refuse({
            status: 502,
            message: "the provider answered with a redirect, which is not followed",
            code: "upstream_redirect",
          });
          return;
        }
        if (status < 400) this.#settlement.answered();
        else if (status === 401 || status === 403) doubt(target.credential);
        answer = plan.translation
          ? new TranslatedAnswer(this.#call, plan, plan.translation, this.#settlement, () => http.abort())
          : new NativeAnswer(this.#call, plan.clientFormat, this.#settlement, plan.hidesUsage);
        this.#answer = answer;
        answer.head(status, headers);
      },
      data: (chunk) => (answer && !this.#over ? answer.data(chunk) : true),
      end: (trailers) => {
        if (given || this.#over) return;
        this.#over = true;
        answer?.end(trailers);
      },
      error: (error) => {
        if (given || this.#over) return;
        if (answer) {
          this.#over = true;
          answer.fail(error);
        } else if (this.#hasNext && error.kind !== "request") giveUp(error.message);
        else {
          if (error.kind !== "request") target.health.failed(undefined);
          this.#fail(error);
        }
      },
    });
    // The answer of an earlier target must not be resumed any more.
    if (!given) this.#http = http;
  }

  get #hasNext(): boolean {
    try {
      return this.#targets.hasNext;
    } catch (error) {
      // A defect of ours must not cost the client the answer that there is.
      this.#env.logger.error("the next target cannot be asked", { error: String(error), request: this.#exchange.id });
      return false;
    }
  }

  /** An answer of ours, in the client's dialect. */
  #reply(status: number, body: Members, headers: Readonly<Record<string, string>> = {}, errorType = ""): void {
    if (this.#over) return;
    this.#over = true;
    this.#settlement.nothing(errorType);
    sendJson(this.#call, status, body, headers);
  }

  #refuse(error: LlmError, headers?: Readonly<Record<string, string>>): void {
    this.#reply(error.status, errorBody(this.#llm.dialect.format, error), headers, error.code);
  }

  #fail(error: unknown): void {
    if (this.#over) return;
    this.#over = true;
    const failure = asCallError(error);
    this.#settlement.nothing(failure instanceof GatewayError ? failure.code : failure.kind);
    this.#call.fail(failure);
  }
}

export function sendJson(
  call: BackendCall,
  status: number,
  body: Members,
  extra: Readonly<Record<string, string>> = {},
): void {
  const bytes = Buffer.from(JSON.stringify(body));
  const headers = { "content-type": "application/json", "content-length": String(bytes.length), ...extra };
  call.head(status, HeaderList.of(headers));
  call.data(bytes);
  call.end();
}

function isFailure(status: number): boolean {
  return status === 429 || status >= 500;
}

function retryAfter(headers: HeaderList): number | undefined {
  const seconds = Number(headers.get("retry-after"));
  return Number.isFinite(seconds) && seconds > 0 ? seconds : undefined;
}

function asCallError(error: unknown): GatewayError | HttpClientError {
  return error instanceof GatewayError || error instanceof HttpClientError
    ? error
    : new GatewayError("internal", { cause: error });
}
