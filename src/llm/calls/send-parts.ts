/**
 * The calls of a request in parts, at one target: each is written and signed when its turn comes.
 */
import type { Exchange } from "../../core/exchange.ts";
import type { HttpCall, OutgoingRequest, ResponseHandler } from "../../http/http-client.ts";
import { parseMembers } from "../../json/json.ts";
import type { Candidate } from "../models/model-table.ts";
import { estimateRequestTokens } from "../usage/estimate-tokens.ts";
import { readHeaderUsage } from "../usage/usage.ts";
import { PartCalls } from "./part-calls.ts";
import { type UpstreamPlan, upstreamRequest } from "./upstream-request.ts";

/** Where the models that take one text at a time are, the count stands in the head. */
const COUNT_HEADER = "x-amzn-bedrock-input-token-count";

export interface PartsOwner extends ResponseHandler {
  heard(): void;
}

/** `first`: signed already. `spent`: what was used, if not all of it is answered. */
export function sendParts(
  exchange: Exchange,
  plan: UpstreamPlan,
  candidate: Candidate,
  first: OutgoingRequest,
  owner: PartsOwner,
  spent: (tokens: number) => void,
): HttpCall {
  const { target } = candidate;
  const { protocol, host, port } = target.address;
  const bodyAt = (at: number): readonly Buffer[] => (at === 0 ? plan.body : (plan.more[at - 1] ?? []));
  return new PartCalls(
    {
      count: plan.more.length + 1,
      request(at) {
        if (at === 0) return first;
        const body = bodyAt(at);
        const request = upstreamRequest(exchange, { ...plan, body }, candidate);
        const { method, path, headers } = request;
        return (
          target.seal?.({ method, protocol, hostname: host, port, path, headers, body })?.then(() => request) ?? request
        );
      },
      send: (request, part) => target.upstream.send(request, part),
      tokensOf: (headers, answer) => readHeaderUsage(headers)?.inputTokens ?? countedIn(answer, plan),
      estimateOf: (at) => estimateRequestTokens(Buffer.concat(bodyAt(at))),
      total(headers, tokens) {
        if (tokens === undefined) headers.delete(COUNT_HEADER);
        else headers.set(COUNT_HEADER, String(tokens));
      },
      heard: () => owner.heard(),
      spent,
    },
    owner,
  );
}

function countedIn(answer: Buffer, { translation }: UpstreamPlan): number | undefined {
  const members = translation?.counts && parseMembers(answer.toString("utf8"));
  return members && translation?.counts?.inputTokens(members);
}
