/**
 * Sends requests of the Messages API to Claude models on Amazon Bedrock, which accept nearly the same body through
 * `invoke`. This preserves content that the translation to Converse rejects, such as Anthropic's own tools.
 */

import { peerInput } from "../../../base/peer-inputs.ts";
import type { Members } from "../../../json/json.ts";
import { readMembers } from "../../../json/read-json.ts";
import { ENDED_EARLY, UpstreamResponseError } from "../../canonical/request-fields.ts";
import type { StreamTranslation, Translation } from "../../canonical/translation.ts";
import { errorMessage } from "../../request/llm-errors.ts";
import { bedrockBetas, membersWithoutBeta } from "../anthropic/betas.ts";

const EVENT = peerInput("llm-provider/stream-event");

const VERSION = "bedrock-2023-05-31";

export const messagesToInvoke: Translation = {
  request(body, { betas, losses }) {
    const { model: _inPath, stream: _inPathToo, anthropic_beta: given, ...rest } = body;
    const wanted = [...betas, ...(Array.isArray(given) ? given.map(String) : [])];
    const known = [...new Set(bedrockBetas(wanted))];
    const sent: Record<string, unknown> = { anthropic_version: VERSION, ...rest };
    for (const member of membersWithoutBeta(known)) {
      if (sent[member] !== undefined && sent[member] !== null) losses.lose(member, sent[member]);
      delete sent[member];
    }
    return losses.passInto(known.length === 0 ? sent : { ...sent, anthropic_beta: known });
  },
  response: (body) => body,
  stream: unwrapped,
};

/** Bedrock adds its own counts to the last event, which clients of the Messages API do not expect. */
const METRICS = "amazon-bedrock-invocationMetrics";

function unwrapped(): StreamTranslation {
  let finished = false;
  return {
    event(type, data) {
      if (type === "exception") throw new UpstreamResponseError(500, errorMessage(data, ""));
      const event = typeof data.bytes === "string" ? readMembers(EVENT, decode(data.bytes)) : undefined;
      if (event === undefined || typeof event.type !== "string")
        throw new UpstreamResponseError(502, "the provider's stream contains an invalid event");
      if (event.type === "message_stop") finished = true;
      return [{ event: event.type, data: withoutMetrics(event) }];
    },
    end() {
      if (!finished) throw new UpstreamResponseError(502, ENDED_EARLY);
      return [];
    },
    heldChars: () => 0,
  };
}

function decode(base64: string): string {
  return Buffer.from(base64, "base64").toString("utf8");
}

function withoutMetrics(event: Members): Members {
  if (!(METRICS in event)) return event;
  const { [METRICS]: _counts, ...rest } = event;
  return rest;
}
