/**
 * One LLM call: the targets in their order, the next one when a target cannot be reached, is overloaded (429) or
 * fails (5xx), as long as nothing has reached the client. The last target's answer is the client's, whatever it is.
 * Redirects are never followed: a key must not go where an answer points.
 */
import type { BackendCall, BackendRun } from "../../core/backend.ts";
import { GatewayError } from "../../core/errors.ts";
import type { Exchange } from "../../core/exchange.ts";
import { HeaderList } from "../../lib/headers.ts";
import type { HttpCall, HttpClientError } from "../../lib/http-client.ts";
import type { Logger } from "../../lib/logger.ts";
import { errorBody, type LlmError } from "../../llm/error-shape.ts";
import { estimateRequestTokens } from "../../llm/estimate-request.ts";
import type { Members } from "../../llm/json.ts";
import type { LlmCall } from "../../llm/llm-call.ts";
import type { TapReport } from "../../llm/usage-tap.ts";
import { missingAwsKeys } from "./credential.ts";
import type { Candidate } from "./model-table.ts";
import { type Answer, NativeAnswer } from "./native-answer.ts";
import type { Settlement } from "./settlement.ts";
import { TranslatedAnswer } from "./translated-answer.ts";
import { type PlanEnv, PlanError, planRequest, type UpstreamPlan, upstreamRequest } from "./upstream-request.ts";

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
  readonly #candidates: readonly Candidate[];
  readonly #settlement: Settlement;
  #next = 0;
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
    this.#candidates = candidates;
    this.#settlement = settlement;
  }

  start(): void {
    const candidate = this.#candidates[this.#next];
    this.#next += 1;
    if (!candidate || this.#over) return;
    const { dialect } = this.#llm;
    try {
      if (
        dialect.free &&
        dialect.format === "messages" &&
        candidate.target.provider.upstreamFormat("messages", candidate.model) !== "messages"
      ) {
        // Only the provider of the client's dialect can count; others' prompts are estimated.
        this.#reply(200, { input_tokens: estimateRequestTokens(this.#llm.bytes) });
        return;
      }
      const plan = planRequest(this.#llm, this.#exchange.request.query, candidate, this.#env);
      const facts = this.#exchange.facts.llm;
      if (facts) facts.provider = candidate.target.provider.name;
      this.#send(candidate, plan);
    } catch (error) {
      if (error instanceof PlanError) this.#refuse(error.error);
      else this.#fail(error);
    }
  }

  abort(): void {
    if (this.#over) return;
    this.#over = true;
    this.#http?.abort();
    if (this.#answer) this.#answer.abort();
    else if (this.#http) this.#settlement.counted(NOTHING_HEARD);
    else this.#settlement.nothing();
  }

  resume(): void {
    this.#http?.resume();
  }

  #send(candidate: Candidate, plan: UpstreamPlan): void {
    const { target } = candidate;
    const request = upstreamRequest(this.#exchange, plan, candidate);
    if (!target.sign) {
      this.#dispatch(candidate, plan, request);
      return;
    }
    const { protocol, host, port } = target.address;
    target
      .sign({
        method: request.method,
        protocol,
        hostname: host,
        port,
        path: request.path,
        headers: request.headers,
        body: plan.body,
      })
      .then(() => {
        if (!this.#over) this.#dispatch(candidate, plan, request);
      })
      .catch((error) => this.#fail(error));
  }

  #dispatch(candidate: Candidate, plan: UpstreamPlan, request: ReturnType<typeof upstreamRequest>): void {
    const { target } = candidate;
    if (
      target.provider.credential === "aws" &&
      !request.headers.has("authorization") &&
      target.credential.kind === "client"
    )
      throw missingAwsKeys();
    this.#call.attempt(target.display);
    let answer: Answer | undefined;
    let given = false;
    const giveUp = (reason: string, retryAfterSeconds?: number): void => {
      given = true;
      target.health.failed(retryAfterSeconds);
      this.#env.logger.warn("trying the next target", { target: target.name, reason, request: this.#exchange.id });
      this.start();
    };
    const http = target.upstream.send(request, {
      head: (status, headers) => {
        if (given || this.#over) return;
        if (isFailure(status)) {
          if (this.#hasNext) {
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
        answer = plan.translation
          ? new TranslatedAnswer(this.#call, plan, plan.translation, this.#settlement)
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
    return this.#next < this.#candidates.length;
  }

  /** An answer of ours, in the client's dialect. */
  #reply(status: number, body: Members): void {
    if (this.#over) return;
    this.#over = true;
    this.#settlement.nothing();
    sendJson(this.#call, status, body);
  }

  #refuse(error: LlmError): void {
    this.#reply(error.status, errorBody(this.#llm.dialect.format, error));
  }

  #fail(error: unknown): void {
    if (this.#over) return;
    this.#over = true;
    this.#settlement.nothing();
    this.#call.fail(asCallError(error));
  }
}

export function sendJson(call: BackendCall, status: number, body: Members): void {
  const bytes = Buffer.from(JSON.stringify(body));
  call.head(status, HeaderList.of({ "content-type": "application/json", "content-length": String(bytes.length) }));
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

function asCallError(error: unknown): unknown {
  return error instanceof GatewayError || (error as HttpClientError).kind !== undefined
    ? error
    : new GatewayError("internal", { cause: error });
}
