/**
 * Lists the dialects and composes each translation from the client side of one dialect and the provider side of
 * another.
 */

import { peerInput } from "../../base/peer-inputs.ts";
import type { Format } from "../request/dialect.ts";
import {
  messagesToInvoke,
  openConverseReader,
  readConverseResponse,
  writeConverseRequest,
} from "./bedrock-provider.ts";
import { openChatStream, readChatRequest, writeChatResponse } from "./chat-client.ts";
import { openChatReader, readChatResponse, writeChatRequest } from "./chat-provider.ts";
import { UpstreamResponseError } from "./conversation.ts";
import { embeddingsInto } from "./embeddings.ts";
import { openGeminiStream, readGeminiRequest, writeGeminiResponse } from "./gemini-client.ts";
import { openGeminiReader, readGeminiResponse, writeGeminiRequest } from "./gemini-provider.ts";
import { openMessagesStream, readMessagesRequest, writeMessagesResponse } from "./messages-client.ts";
import { openMessagesReader, readMessagesResponse, writeMessagesRequest } from "./messages-provider.ts";
import { readResponsesRequest } from "./responses-request.ts";
import { openResponsesStream, writeResponsesResponse } from "./responses-response.ts";
import {
  type ClientDialect,
  CompleteResponse,
  type ProviderDialect,
  type ResponseSink,
  type StreamWriter,
  type Translation,
} from "./translation.ts";

/** Calls of a Chat Completions stream are open until its end, so this limits their number there. */
const MAX_OPEN_CALLS = peerInput("llm-provider/event-stream").maxOpen;

const CLIENTS: Readonly<Partial<Record<Format, ClientDialect>>> = {
  chat: { readRequest: readChatRequest, writeResponse: writeChatResponse, openStream: openChatStream },
  messages: { readRequest: readMessagesRequest, writeResponse: writeMessagesResponse, openStream: openMessagesStream },
  responses: {
    readRequest: readResponsesRequest,
    writeResponse: writeResponsesResponse,
    openStream: openResponsesStream,
  },
  generateContent: { readRequest: readGeminiRequest, writeResponse: writeGeminiResponse, openStream: openGeminiStream },
};

const PROVIDERS: Readonly<Partial<Record<Format, ProviderDialect>>> = {
  chat: { writeRequest: writeChatRequest, readResponse: readChatResponse, openStream: openChatReader },
  messages: { writeRequest: writeMessagesRequest, readResponse: readMessagesResponse, openStream: openMessagesReader },
  generateContent: { writeRequest: writeGeminiRequest, readResponse: readGeminiResponse, openStream: openGeminiReader },
  converse: { writeRequest: writeConverseRequest, readResponse: readConverseResponse, openStream: openConverseReader },
};

export function translationBetween(client: Format, provider: Format): Translation | undefined {
  // Both formats have nearly the same body, so no canonical conversion is needed.
  if (client === "messages" && provider === "invoke") return messagesToInvoke;
  if (client === "embeddings") return embeddingsInto(provider);
  const from = CLIENTS[client];
  const to = PROVIDERS[provider];
  return from && to && compose(from, to);
}

function compose(client: ClientDialect, provider: ProviderDialect): Translation {
  return {
    request(body, context) {
      context.parsedItems = 0;
      context.parsedChars = 0;
      return context.losses.passInto(provider.writeRequest(client.readRequest(body, context), context));
    },
    response(body, context) {
      context.parsedItems = 0;
      context.parsedChars = 0;
      const response = new CompleteResponse();
      provider.readResponse(body, response, context);
      return client.writeResponse(response, context);
    },
    stream(context) {
      context.parsedItems = 0;
      context.parsedChars = 0;
      const writer = client.openStream(context);
      const reader = provider.openStream(withCallLimit(writer), context);
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
        heldChars: () => writer.heldChars(),
      };
    },
  };
}

/** Rejects a stream that opens more tool calls than `MAX_OPEN_CALLS`, because each open call needs memory. */
function withCallLimit(writer: StreamWriter): ResponseSink {
  let open = 0;
  return {
    ...writer,
    toolCall(choice, call, id, name, signature) {
      if (open === MAX_OPEN_CALLS)
        throw new UpstreamResponseError(502, `the provider's stream has more than ${MAX_OPEN_CALLS} open tool calls`);
      open += 1;
      writer.toolCall(choice, call, id, name, signature);
    },
    toolEnd(choice, call) {
      open -= 1;
      writer.toolEnd(choice, call);
    },
  };
}
