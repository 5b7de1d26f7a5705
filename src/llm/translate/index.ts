/**
 * THE list of translations, from a client's dialect to a provider's. Chat is the middle: what has no direct
 * translation goes through it. What is not listed is refused.
 */
import type { Format } from "../dialects/dialect.ts";
import { isMembers } from "../wire/json.ts";
import { chatToConverse } from "./chat-to-converse.ts";
import { chatToGemini } from "./chat-to-gemini.ts";
import { chatToMessages } from "./chat-to-messages.ts";
import { messagesToChat } from "./messages-to-chat.ts";
import { messagesToInvoke } from "./messages-to-invoke.ts";
import { chain, type Translation } from "./translation.ts";

/** Bedrock's models think by a budget, as Anthropic's clients ask for it, not by the effort of the chat dialect. */
const messagesToConverse = chain(
  {
    ...messagesToChat,
    request(body, context) {
      const chat = messagesToChat.request(body, context);
      const effort = isMembers(body.output_config) ? body.output_config.effort : undefined;
      const thinks = isMembers(body.thinking) && body.thinking.type !== "disabled";
      if (!thinks || (effort !== undefined && effort !== null)) return chat;
      const { reasoning_effort: _fromBudget, ...rest } = chat;
      return { ...rest, thinking: body.thinking };
    },
  },
  chatToConverse,
);

const TRANSLATIONS: readonly {
  readonly client: Format;
  readonly provider: Format;
  readonly translation: Translation;
}[] = [
  { client: "chat", provider: "messages", translation: chatToMessages },
  { client: "chat", provider: "generateContent", translation: chatToGemini },
  { client: "chat", provider: "converse", translation: chatToConverse },
  { client: "messages", provider: "chat", translation: messagesToChat },
  { client: "messages", provider: "generateContent", translation: chain(messagesToChat, chatToGemini) },
  { client: "messages", provider: "converse", translation: messagesToConverse },
  { client: "messages", provider: "invoke", translation: messagesToInvoke },
];

export function translationBetween(client: Format, provider: Format): Translation | undefined {
  return TRANSLATIONS.find((one) => one.client === client && one.provider === provider)?.translation;
}
