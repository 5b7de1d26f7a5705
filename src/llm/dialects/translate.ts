/**
 * THE list of dialects. A translation is put together from how the client's dialect is read and written and how the
 * provider's is: no pair is written by itself. What is not listed is refused.
 */

import { WholeAnswer } from "../canonical/answer.ts";
import type { ClientDialect, ProviderDialect, Translation } from "../canonical/translation.ts";
import type { Format } from "../request/dialect.ts";
import { readMessagesRequest } from "./anthropic/client-request.ts";
import { openMessagesStream, writeMessagesAnswer } from "./anthropic/client-response.ts";
import { writeMessagesRequest } from "./anthropic/upstream-request.ts";
import { openMessagesReader, readMessagesAnswer } from "./anthropic/upstream-response.ts";
import { messagesToInvoke } from "./bedrock/messages-to-invoke.ts";
import { writeConverseRequest } from "./bedrock/upstream-request.ts";
import { openConverseReader, readConverseAnswer } from "./bedrock/upstream-response.ts";
import { embeddingsInto } from "./embeddings.ts";
import { readGeminiRequest } from "./gemini/client-request.ts";
import { openGeminiStream, writeGeminiAnswer } from "./gemini/client-response.ts";
import { writeGeminiRequest } from "./gemini/upstream-request.ts";
import { openGeminiReader, readGeminiAnswer } from "./gemini/upstream-response.ts";
import { readChatRequest } from "./openai/client-request.ts";
import { openChatStream, writeChatAnswer } from "./openai/client-response.ts";
import { writeChatRequest } from "./openai/upstream-request.ts";
import { openChatReader, readChatAnswer } from "./openai/upstream-response.ts";
import { readResponsesRequest } from "./responses/client-request.ts";
import { writeResponsesAnswer } from "./responses/client-response.ts";
import { openResponsesStream } from "./responses/client-stream.ts";

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
