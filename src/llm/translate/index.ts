/**
 * THE list of translations, from a client's dialect to a provider's. Chat is the middle: what has no direct
 * translation goes through it. What is not listed is refused.
 */
import type { Format } from "../dialect.ts";
import { chatToConverse } from "./chat-to-converse.ts";
import { chatToGemini } from "./chat-to-gemini.ts";
import { chatToMessages } from "./chat-to-messages.ts";
import { messagesToChat } from "./messages-to-chat.ts";
import { chain, type Translation } from "./translation.ts";

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
  { client: "messages", provider: "converse", translation: chain(messagesToChat, chatToConverse) },
];

export function translationBetween(client: Format, provider: Format): Translation | undefined {
  return TRANSLATIONS.find((one) => one.client === client && one.provider === provider)?.translation;
}
