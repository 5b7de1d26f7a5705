/**
 * The targets of one call in the order in which they are tried, each with what it would be sent. A target that cannot
 * be told all of the request comes after those that can; one that cannot be asked at all is passed over, and only if
 * there is no other does the client hear why.
 */
import type { GatewayRequest } from "../../core/exchange.ts";
import type { Candidate } from "../models/model-table.ts";
import type { Dialect, Format } from "../request/dialect.ts";
import type { LlmCall } from "../request/llm-call.ts";
import type { LlmError } from "../request/llm-errors.ts";
import { PlanError } from "./plan-error.ts";
import { type PlanEnv, planRequest, type UpstreamPlan } from "./upstream-request.ts";

export interface Planned {
  readonly candidate: Candidate;
  /** Undefined where the gateway answers itself. */
  readonly plan: UpstreamPlan | undefined;
}

export class TargetQueue {
  /** Why the first target that was passed over could not be asked. */
  refusal: LlmError | undefined = undefined;
  /** When the first of those that were passed over because their minute is used up can be asked. */
  retryAfterSeconds: number | undefined = undefined;
  readonly #llm: LlmCall;
  readonly #request: Pick<GatewayRequest, "query" | "headers">;
  readonly #candidates: readonly Candidate[];
  readonly #env: PlanEnv;
  /** Planned, with something left out: for when no other is left. */
  readonly #later: Planned[] = [];
  #next = 0;
  #planned: Planned | undefined;

  constructor(
    llm: LlmCall,
    request: Pick<GatewayRequest, "query" | "headers">,
    candidates: readonly Candidate[],
    env: PlanEnv,
  ) {
    this.#llm = llm;
    this.#request = request;
    this.#candidates = candidates;
    this.#env = env;
  }

  /** How many may still be asked at most: some may turn out not to understand the client's words. */
  get left(): number {
    return this.#candidates.length - this.#next + this.#later.length + (this.#planned === undefined ? 0 : 1);
  }

  get hasNext(): boolean {
    return this.#peek() !== undefined;
  }

  take(): Planned | undefined {
    const planned = this.#peek();
    this.#planned = undefined;
    return planned;
  }

  #peek(): Planned | undefined {
    while (this.#planned === undefined) {
      const candidate = this.#candidates[this.#next];
      if (!candidate) {
        this.#planned = this.#later.shift();
        return this.#planned;
      }
      this.#next += 1;
      const planned = this.#plan(candidate);
      if (planned?.plan?.translation && planned.plan.context.losses.names.length > 0) this.#later.push(planned);
      else this.#planned = planned;
    }
    return this.#planned;
  }

  #plan(candidate: Candidate): Planned | undefined {
    const { quota } = candidate.target;
    if (quota?.isUsedUp) {
      this.retryAfterSeconds = Math.min(this.retryAfterSeconds ?? quota.secondsLeft, quota.secondsLeft);
      this.refusal ??= {
        status: 429,
        message: "the model's requests or tokens per minute are used up",
        code: "rate_limited",
      };
      return undefined;
    }
    const { dialect } = this.#llm;
    const { provider } = candidate.target;
    const counted = countedFormat(dialect);
    // Only the provider of the client's dialect can count; others' prompts are estimated.
    if (counted !== undefined && provider.upstreamFormat(counted, candidate.model) !== counted)
      return { candidate, plan: undefined };
    try {
      return { candidate, plan: planRequest(this.#llm, this.#request, candidate, this.#env) };
    } catch (error) {
      if (!(error instanceof PlanError)) throw error;
      this.refusal ??= error.error;
      return undefined;
    }
  }
}

/** The dialect of a question for the size of a prompt; undefined if it is something else. */
export function countedFormat({ free, format, suffix }: Dialect): Format | undefined {
  if (!free) return undefined;
  if (format === "messages") return format;
  return suffix.endsWith(":countTokens") ? "generateContent" : undefined;
}
