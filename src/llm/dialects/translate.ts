/**
 * THE list of dialects. A translation is put together from how the client's dialect is read and written and how the
 * provider's is: no pair is written by itself. What is not listed is refused.
 */

import { WholeAnswer } from "../canonical/response.ts";
import type { ClientDialect, ProviderDialect, Translation } from "../canonical/translation.ts";
import type { Format } from "../request/dialect.ts";
import { openMessagesStream, readMessagesRequest, writeMessagesAnswer } from "./anthropic/client.ts";
import { openMessagesReader, readMessagesAnswer, writeMessagesRequest } from "./anthropic/upstream.ts";
import { openConverseReader, readConverseAnswer, writeConverseRequest } from "./bedrock/converse-upstream.ts";
import { messagesToInvoke } from "./bedrock/invoke-upstream.ts";
import { embeddingsInto } from "./embeddings.ts";
import { openGeminiStream, readGeminiRequest, writeGeminiAnswer } from "./gemini/client.ts";
import { openGeminiReader, readGeminiAnswer, writeGeminiRequest } from "./gemini/upstream.ts";
import { openChatStream, readChatRequest, writeChatAnswer } from "./openai/client.ts";
import { openChatReader, readChatAnswer, writeChatRequest } from "./openai/upstream.ts";
import { readResponsesRequest } from "./responses/client-request.ts";
import { openResponsesStream, writeResponsesAnswer } from "./responses/client-response.ts";

const CLIENTS: Readonly<Partial<Record<Format, ClientDialect>>> = {
  chat: { readRequest: readChatRequest, writeAnswer: writeChatAnswer, openStream: openChatStream },
  messages: { readRequest: readMessagesRequest, writeAnswer: writeMessagesAnswer, openStream: openMessagesStream },
  responses: { readRequest: readResponsesRequest, writeAnswer: writeResponsesAnswer, openStream: openResponsesStream },
  generateContent: { readRequest: readGeminiRequest, writeAnswer: writeGeminiAnswer, openStream: openGeminiStream },
};

const PROVIDERS: Readonly<Partial<Record<Format, ProviderDialect>>> = {
  chat: { writeRequest: writeChatRequest, readAnswer: readChatAnswer, openStream: openChatReader },
  messages: { writeRequest: writeMessagesRequest, readAnswer: readMessagesAnswer, openStream: openMessagesReader },
  generateContent: { writeRequest: writeGeminiRequest, readAnswer: readGeminiAnswer, openStream: openGeminiReader },
  converse: { writeRequest: writeConverseRequest, readAnswer: readConverseAnswer, openStream: openConverseReader },
};

export function translationBetween(client: Format, provider: Format): Translation | undefined {
  // The same words in another wrapping: nothing has to be understood.
  if (client === "messages" && provider === "invoke") return messagesToInvoke;
  if (client === "embeddings") return embeddingsInto(provider);
  const from = CLIENTS[client];
  const to = PROVIDERS[provider];
  return from && to && compose(from, to);
}

function compose(client: ClientDialect, provider: ProviderDialect): Translation {
  return {
    request: (body, context) =>
      context.losses.passInto(provider.writeRequest(client.readRequest(body, context), context)),
    response(body, context) {
      const answer = new WholeAnswer();
      provider.readAnswer(body, answer, context);
      return client.writeAnswer(answer, context);
    },
    stream(context) {
      const writer = client.openStream(context);
      const reader = provider.openStream(writer, context);
      return {
        event(type, data) {
          reader.event(type, data);
          return writer.take();
        },
        end() {
          reader.end();
          writer.end();
          return writer.take();
        },
      };
    },
  };
}
