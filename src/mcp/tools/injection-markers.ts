/**
 * Signs that a tool's text speaks to the model instead of describing the tool: instructions to ignore others, hidden
 * characters, demands for secrets. A sign is no proof; a person looks at it before the tool is accepted.
 */

/** Texts are looked at up to this length: a description that goes on is a sign by itself. */
const MAX_LOOKED_AT_CHARS = 20_000;

const MARKERS: readonly { readonly says: string; readonly pattern: RegExp }[] = [
  {
    says: "asks to ignore other instructions",
    pattern:
      /\b(?:ignore|disregard|forget|override)\b.{0,40}\b(?:previous|prior|above|earlier|other|all|your|system)\b.{0,40}\b(?:instruction|prompt|rule|message|guideline)/is,
  },
  {
    says: "has a tag that imitates a prompt",
    pattern:
      /<\s*\/?\s*(?:important|system|instructions?|secret|assistant|user|admin)\b[^>]{0,80}>|\[\/?(?:INST|SYSTEM)\]|<\|[a-z_]{2,30}\|>/i,
  },
  {
    says: "asks to keep something from the user",
    pattern:
      /\b(?:do not|don'?t|never|without)\b.{0,40}\b(?:tell|telling|mention|mentioning|inform|informing|notify|notifying|reveal|show)\b.{0,40}\b(?:user|human|anyone)/is,
  },
  {
    says: "gives orders about other tools",
    pattern:
      /\b(?:before|after|instead of|whenever|prior to)\b.{0,40}\b(?:calling|using|invoking|any other|every other)\b.{0,60}\b(?:must|always|first|tool)/is,
  },
  {
    says: "names files or variables with secrets",
    pattern:
      /~\/\.(?:ssh|aws|config|cursor|claude|kube|gnupg|netrc)|\bid_rsa\b|\/etc\/(?:passwd|shadow)|\.env\b(?!iron)|\b(?:api[_ -]?keys?|access tokens?|private keys?|passwords?)\b.{0,60}\b(?:read|send|include|pass|append|attach|upload)\b/is,
  },
  {
    says: "mentions the system prompt",
    pattern: /\bsystem prompt\b|\byou are (?:now|an?) (?:ai|assistant|language model)/i,
  },
  {
    says: "asks to send data elsewhere",
    pattern: /\b(?:send|post|upload|forward|exfiltrate|leak)\b.{0,80}\bhttps?:\/\//is,
  },
  {
    says: "has invisible or direction-changing characters",
    pattern: /[\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\u00ad]|[\u{e0000}-\u{e007f}]/u,
  },
  { says: "has a long run of encoded text", pattern: /[A-Za-z0-9+/]{200,}={0,2}/ },
];

/** What is suspicious in any text of a tool's definition; empty where nothing is. */
export function injectionMarkers(definition: unknown): string[] {
  const found = new Set<string>();
  let chars = 0;
  const look = (value: unknown, depth: number): void => {
    if (depth > 32) {
      found.add("is nested very deeply");
      return;
    }
    if (typeof value === "string") {
      chars += value.length;
      const text = value.slice(0, MAX_LOOKED_AT_CHARS);
      for (const { says, pattern } of MARKERS) if (pattern.test(text)) found.add(says);
    } else if (Array.isArray(value)) for (const one of value) look(one, depth + 1);
    else if (typeof value === "object" && value !== null)
      for (const [key, one] of Object.entries(value)) {
        look(key, depth + 1);
        look(one, depth + 1);
      }
  };
  look(definition, 0);
  if (chars > MAX_LOOKED_AT_CHARS) found.add("is unusually long");
  return [...found];
}
