/**
 * Lists the models behind patterns such as `groq/*` with the provider's own list. Each list is fetched on demand and
 * kept for a few minutes.
 */
import type { Clock } from "../../base/clock.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { runInSlices } from "../../base/sliced-work.ts";
import { HeaderList } from "../../http/headers.ts";
import type { HttpCall, OutgoingRequest } from "../../http/http-client.ts";
import { isMembers, type Members } from "../../json/json.ts";
import { readMembersInSteps } from "../../json/parse-in-steps.ts";
import type { Logger } from "../../record/log/logger.ts";
import { matchPattern } from "../request/read-request.ts";
import { addKey } from "./credential.ts";
import type { ModelTable } from "./model-table.ts";
import type { Target } from "./target.ts";

const MODELS = peerInput("llm-provider/models");

const FRESH_MS = 5 * 60_000;
/** A list that could not be fetched is not requested again for this long. */
const RETRY_MS = 60_000;
const TIMEOUT_MS = 5_000;
const MAX_BYTES = MODELS.maxBytes;
const MAX_MODELS = 5_000;
const MAX_NAME_LENGTH = 256;

export interface ListedModels {
  /** Resolves with names that clients can use, in the order of the patterns and of the providers' lists. */
  names(): Promise<readonly string[]>;
}

/** Returns undefined if there is no model list to fetch. */
export function createListedModels(
  table: Pick<ModelTable, "patternTargets">,
  env: { readonly clock: Clock; readonly logger: Logger },
): ListedModels | undefined {
  const lists = new Map<Target, TargetList>();
  const sources: { readonly pattern: string; readonly model: string; readonly list: TargetList }[] = [];
  for (const { pattern, members } of table.patternTargets)
    for (const { target, model } of members) {
      const upstream = model ?? target.model ?? pattern;
      if (!upstream.includes("*") || target.provider.modelList === undefined || target.pathOverride !== undefined)
        continue;
      const list = lists.get(target) ?? new TargetList(target, env.clock, env.logger);
      lists.set(target, list);
      sources.push({ pattern, model: upstream, list });
    }
  if (sources.length === 0) return undefined;
  return {
    async names() {
      await Promise.all([...lists.values()].map((list) => list.refresh()));
      const names = new Set<string>();
      for (const { pattern, model, list } of sources)
        for (const id of list.ids) {
          const starred = matchPattern(model, id);
          if (starred !== undefined && starred !== "") names.add(pattern.replace("*", () => starred));
        }
      return [...names];
    },
  };
}

class TargetList {
  ids: readonly string[] = [];
  readonly #target: Target;
  readonly #clock: Clock;
  readonly #logger: Logger;
  #dueMs = Number.NEGATIVE_INFINITY;
  #refreshing: Promise<void> | undefined = undefined;
  #isReported = false;

  constructor(target: Target, clock: Clock, logger: Logger) {
    this.#target = target;
    this.#clock = clock;
    this.#logger = logger;
  }

  /** Never rejects. Concurrent callers share one request to the provider. */
  refresh(): Promise<void> {
    if (this.#refreshing === undefined && this.#clock.monotonicMs() < this.#dueMs) return Promise.resolve();
    this.#refreshing ??= this.#fetch().finally(() => {
      this.#refreshing = undefined;
    });
    return this.#refreshing;
  }

  async #fetch(): Promise<void> {
    try {
      this.ids = await fetchIds(this.#target, this.#clock);
      this.#dueMs = this.#clock.monotonicMs() + FRESH_MS;
      this.#isReported = false;
    } catch (error) {
      this.#dueMs = this.#clock.monotonicMs() + RETRY_MS;
      if (this.#isReported) return;
      this.#isReported = true;
      const reason = error instanceof Error ? error.message : String(error);
      this.#logger.warn("the provider's models are not listed", { target: this.#target.name, reason });
    }
  }
}

async function fetchIds(target: Target, clock: Clock): Promise<readonly string[]> {
  const { modelList, headers: own, credential: form } = target.provider;
  if (modelList === undefined) return [];
  const path = `${target.basePath}${modelList.path}`;
  const headers = HeaderList.of({ host: target.authority, accept: "application/json", "accept-encoding": "identity" });
  if (target.credential.kind === "key") addKey(headers, form, target.credential.read());
  for (const [name, value] of Object.entries(own)) headers.set(name, value);
  const { protocol, host, port } = target.address;
  const method = "GET";
  await target.sign?.({ method, protocol, hostname: host, port, path, headers, body: [] });
  const bytes = await receive(target, { method, path, headers }, clock);
  const body = await runInSlices(readMembersInSteps(MODELS, bytes), () => false);
  const ids = body && modelIds(body[modelList.member], modelList.id);
  if (ids === undefined) throw new Error("the response has no list of models");
  return ids;
}

function modelIds(entries: unknown, member: string): readonly string[] | undefined {
  if (!Array.isArray(entries)) return undefined;
  const ids: string[] = [];
  for (const entry of entries.slice(0, MAX_MODELS)) {
    const value: unknown = isMembers(entry) ? (entry as Members)[member] : undefined;
    if (typeof value !== "string" || value.length > MAX_NAME_LENGTH) continue;
    // Google's names include the collection.
    ids.push(value.replace(/^models\//, ""));
  }
  return ids;
}

function receive(target: Target, request: OutgoingRequest, clock: Clock): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let size = 0;
    let call: HttpCall | undefined;
    const fail = (error: Error): void => {
      timer.cancel();
      call?.abort();
      reject(error);
    };
    const timer = clock.after(TIMEOUT_MS, () => fail(new Error(`no response within ${TIMEOUT_MS} ms`)));
    call = target.upstream.send(request, {
      head(status) {
        if (status !== 200) fail(new Error(`status ${status}`));
      },
      data(chunk) {
        chunks.push(chunk);
        size += chunk.length;
        if (size > MAX_BYTES) fail(new Error(`the response is larger than ${MAX_BYTES} bytes`));
        return true;
      },
      end() {
        timer.cancel();
        resolve(Buffer.concat(chunks));
      },
      fail,
    });
  });
}
