/**
 * THE list of dialects. A translation is put together from how the client's dialect is read and written and how the
 * provider's is: no pair is written by itself. What is not listed is refused.
 */
import { openChatStream, writeChatAnswer } from "../clients/chat-answer.ts";
import { readChatRequest } from "../clients/chat-request.ts";
import { openGeminiStream, writeGeminiAnswer } from "../clients/gemini-answer.ts";
import { readGeminiRequest } from "../clients/gemini-request.ts";
import { openMessagesStream, writeMessagesAnswer } from "../clients/messages-answer.ts";
import { readMessagesRequest } from "../clients/messages-request.ts";
import { writeResponsesAnswer } from "../clients/responses-answer.ts";
import { readResponsesRequest } from "../clients/responses-request.ts";
import { openResponsesStream } from "../clients/responses-stream.ts";
import type { Format } from "../dialects/dialect.ts";
import { WholeAnswer } from "../form/answer.ts";
import type { ClientDialect, ProviderDialect, Translation } from "../form/translation.ts";
import { openChatReader, readChatAnswer } from "../upstreams/chat-answer.ts";
import { writeChatRequest } from "../upstreams/chat-request.ts";
import { openConverseReader, readConverseAnswer } from "../upstreams/converse-answer.ts";
import { writeConverseRequest } from "../upstreams/converse-request.ts";
import { openGeminiReader, readGeminiAnswer } from "../upstreams/gemini-answer.ts";
import { writeGeminiRequest } from "../upstreams/gemini-request.ts";
import { openMessagesReader, readMessagesAnswer } from "../upstreams/messages-answer.ts";
import { writeMessagesRequest } from "../upstreams/messages-request.ts";
import { embeddingsInto } from "./embeddings.ts";
import { messagesToInvoke } from "./messages-to-invoke.ts";

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
