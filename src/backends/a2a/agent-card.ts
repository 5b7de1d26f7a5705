/**
 * Fetches the card of an A2A agent and rewrites it for clients. The gateway's address replaces the agent's, and
 * transports that the gateway does not forward (gRPC, REST) are removed. Signatures are removed too, because they
 * would no longer verify.
 */

import type { Clock } from "../../base/clock.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import type { Fetch } from "../../http/fetch.ts";
import { readJson } from "../../json/read-json.ts";

const CARD = peerInput("a2a-agent/card");

const CARD_MS = 10_000;
const KEPT_MS = 300_000;
/** After a failure, the card is not fetched again for this time. */
const FAILED_MS = 10_000;
const MAX_SKILLS = 1_000;

export type AgentCard = Readonly<Record<string, unknown>>;

export const CARD_PATHS = ["/.well-known/agent-card.json", "/.well-known/agent.json"];

export class AgentCards {
  readonly #urls: readonly string[];
  readonly #fetch: Fetch;
  readonly #clock: Clock;
  #card: { readonly read: Promise<AgentCard>; untilMs: number } | undefined = undefined;

  /** `given` is the URL of the card if it is not at the standard location. */
  constructor(agentUrl: string, given: string | undefined, fetch: Fetch, clock: Clock) {
    const { origin, pathname } = new URL(agentUrl);
    const base = `${origin}${pathname.replace(/\/+$/, "")}`;
    this.#urls = given ? [given] : [...new Set([base, origin].flatMap((at) => CARD_PATHS.map((path) => at + path)))];
    this.#fetch = fetch;
    this.#clock = clock;
  }

  get(): Promise<AgentCard> {
    const nowMs = this.#clock.monotonicMs();
    if (this.#card && this.#card.untilMs > nowMs) return this.#card.read;
    const card = { read: this.#read(), untilMs: nowMs + KEPT_MS };
    card.read.catch(() => {
      card.untilMs = this.#clock.monotonicMs() + FAILED_MS;
    });
    this.#card = card;
    return card.read;
  }

  async #read(): Promise<AgentCard> {
    let problem = "";
    for (const url of this.#urls) {
      try {
        const answer = await this.#fetch({ url, timeoutMs: CARD_MS, input: CARD });
        if (answer.status !== 200) throw new Error(`status ${answer.status}`);
        const card = readJson(CARD, answer.body);
        if (isObject(card)) return card;
        throw new Error("not a JSON object");
      } catch (error) {
        problem = `${url}: ${error instanceof Error ? error.message : String(error)}`;
      }
    }
    throw new Error(`the agent's card cannot be read: ${problem}`);
  }
}

/** `address` is the gateway URL that clients call. */
export function shownCard(card: AgentCard, address: string): AgentCard {
  const { signatures: _, ...shown } = card;
  const ways = (list: unknown): object[] =>
    (Array.isArray(list) ? list : [])
      .filter((one) => isObject(one) && isJsonRpc(one.transport ?? one.protocolBinding))
      .map((one) => ({ ...one, url: address }));
  return {
    ...shown,
    ...("url" in card || !("supportedInterfaces" in card) ? { url: address, preferredTransport: "JSONRPC" } : {}),
    ...("additionalInterfaces" in card ? { additionalInterfaces: ways(card.additionalInterfaces) } : {}),
    ...("supportedInterfaces" in card ? { supportedInterfaces: ways(card.supportedInterfaces) } : {}),
  };
}

export function skillsOf({ skills }: AgentCard): string[] {
  const list = Array.isArray(skills) ? skills.slice(0, MAX_SKILLS) : [];
  return list.flatMap((skill) => (isObject(skill) && typeof skill.id === "string" ? [skill.id] : []));
}

function isJsonRpc(transport: unknown): boolean {
  return transport === undefined || String(transport).toUpperCase() === "JSONRPC";
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
