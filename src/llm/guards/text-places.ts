/**
 * Finds the texts in the body of a request, response, or stream event in any dialect. A string in an unknown member
 * counts as text, so that new provider members are guarded.
 */
import { decodeText, isBinary, isTextType, SAMPLED_CHARACTERS } from "../../base/encoded-text.ts";
import type { Steps } from "../../base/sliced-work.ts";
import { UniqueNames } from "../../base/unique-names.ts";
import { isMembers, type Members, putMember } from "../../json/json.ts";
import type { TextGuard } from "../request/llm-call.ts";
import { type GuardFound, guardParts, spreadText } from "./guarded-text.ts";

export type Direction = "request" | "response";

export interface TextPlace {
  /**
   * Joins the names of the members that lead to the string (see `readPath`). A list item with an `index` is named by
   * it.
   */
  readonly path: string;
  /** Strings with the same value are parts of one text. */
  readonly run: string;
  readonly name: string;
  readonly holder: Members;
  /** True if the string is a value or a member name in arbitrary JSON. */
  readonly isFree: boolean;
}

interface PlaceOptions {
  readonly direction: Direction;
  /** Restores the encoded data that a placeholder represents (see `Skeleton.resolve`). */
  readonly resolve?: Resolve | undefined;
}

export type Resolve = (text: string, maxBytes?: number) => string;

type Visit = (text: string, place: TextPlace) => string;

/** These members hold identifiers and protocol keywords. A value with whitespace is guarded as text. */
const STRUCTURAL_MEMBERS: ReadonlySet<string> = new Set([
  ...["id", "type", "role", "model", "object", "status", "event_type"],
  ...["tool_call_id", "call_id", "tool_use_id", "toolUseId", "item_id", "file_id", "container_id", "response_id"],
  ...["previous_response_id", "prompt_cache_key", "system_fingerprint", "responseId", "modelVersion", "model_version"],
  ...["mime_type", "mimeType", "media_type", "finish_reason", "finishReason", "stop_reason", "stopReason"],
  ...["signature", "thoughtSignature", "thought_signature", "encrypted_content", "encrypted_index", "obfuscation"],
]);

/** These members hold encoded binary data. Data that decodes to text is guarded. */
const ENCODED_MEMBERS: ReadonlySet<string> = new Set([
  ...["data", "bytes", "file_data", "b64_json", "partial_image_b64", "redactedContent", "imageBytes", "videoBytes"],
  ...["bytesBase64Encoded"],
]);

/** These members hold addresses of images and files. A data URL contains the file itself, so it is checked. */
const URL_MEMBERS: ReadonlySet<string> = new Set([
  ...["url", "uri", "image_url", "file_url", "audio_url", "video_url", "file_uri", "fileUri", "gcsUri", "s3Uri"],
]);
const REMOTE_URL = /^(?:https?|gs|s3):\/\/[^\s]+$/i;

const FREE_MEMBERS: ReadonlySet<string> = new Set([
  ...["input", "args", "arguments", "json", "structuredContent", "parsed", "metadata", "requestMetadata", "labels"],
  ...["parameters", "properties", "schema", "input_schema", "inputSchema", "output_schema", "parametersJsonSchema"],
  ...["responseSchema", "response_schema", "responseJsonSchema", "response_json_schema"],
  ...["parameters_json_schema", "$defs", "definitions", "chat_template_kwargs", "extra_body", "variables"],
  ...["promptVariables", "additionalModelRequestFields", "additionalModelResponseFields", "guided_json"],
]);

/** Models read the parts in these lists as one text. */
const JOINED_LISTS: ReadonlySet<string> = new Set([
  ...["content", "parts", "system", "summary", "thinking", "reasoning_details", "output", "prediction"],
]);

/** These members continue the text of the previous part. */
const JOINED_MEMBERS: ReadonlySet<string> = new Set(["text", "thinking", "reasoning", "refusal", "input_text"]);

const WITHHELD_MEMBERS: ReadonlySet<string> = new Set([
  ...["logprobs", "logprobsResult", "logprobs_result", "prompt_logprobs", "token_ids", "prompt_token_ids"],
]);

/** Returns the same object if nothing changed. */
export function mapTexts(body: Members, options: PlaceOptions, visit: Visit): Members {
  return new Walk(options, visit).members(body, { path: "", run: "", mediaType: "", isFree: false });
}

export function readPath(path: string): string[] {
  const names = path.split(".").slice(1);
  return path.includes("~") ? names.map((name) => name.replaceAll("~1", ".").replaceAll("~0", "~")) : names;
}

export function isStructural(name: string, text: string): boolean {
  return STRUCTURAL_MEMBERS.has(name) && !/\s/.test(text);
}

export function labelOf(item: unknown, position: number): number {
  return isMembers(item) && typeof item.index === "number" ? item.index : position;
}

/** Shorter numbers are not checked, because they are common and no pattern for personal data is as short. */
export const MIN_GUARDED_DIGITS = 7;

interface Place {
  readonly path: string;
  readonly run: string;
  readonly mediaType: string;
  readonly isFree: boolean;
}

class Walk {
  readonly #options: PlaceOptions;
  readonly #visit: Visit;

  constructor(options: PlaceOptions, visit: Visit) {
    this.#options = options;
    this.#visit = visit;
  }

  members(value: Members, place: Place): Members {
    const { isFree, path, run } = place;
    const own = isFree ? undefined : (value.mimeType ?? value.mime_type ?? value.media_type ?? value.format);
    const mediaType = typeof own === "string" ? own : place.mediaType;
    let changed: Record<string, unknown> | undefined;
    let names: UniqueNames | undefined;
    for (const name of Object.keys(value)) {
      const member = value[name];
      if (!isFree && !mayHaveText(name, member)) {
        if (changed !== undefined) putMember(changed, names?.next(name) ?? name, member);
        continue;
      }
      const below = `${path}.${name.includes(".") || name.includes("~") ? escaped(name) : name}`;
      const shown = isFree
        ? this.#visit(name, { path: `${below}#`, run: `${below}#`, name, holder: value, isFree })
        : name;
      const mapped = this.#member(value, name, member, {
        path: below,
        run: run.endsWith(".*") && !JOINED_MEMBERS.has(name) ? below : `${run}.${name}`,
        mediaType,
        isFree: isFree || isFreeMember(path, name, member),
      });
      if (changed === undefined) {
        if (mapped === member && shown === name) continue;
        changed = copyUpTo(value, name);
        // Two names may have the same mask, and both members must be kept.
        names = new UniqueNames();
        for (const own of Object.keys(changed)) names.next(own);
      }
      if (mapped !== undefined) putMember(changed, names?.next(shown) ?? shown, mapped);
    }
    return changed ?? value;
  }

  #member(holder: Members, name: string, value: unknown, place: Place): unknown {
    if (!place.isFree && this.#options.direction === "response" && WITHHELD_MEMBERS.has(name) && value != null)
      return Array.isArray(value) ? [] : name === "logprobs" ? null : undefined;
    if (typeof value === "string") return this.#string(value, name, holder, place);
    if (typeof value === "number") return this.#number(value, name, holder, place);
    if (Array.isArray(value)) return this.#list(value, name, holder, place);
    return isMembers(value) ? this.members(value, place) : value;
  }

  #list(list: readonly unknown[], name: string, holder: Members, place: Place): readonly unknown[] {
    const isJoined = !place.isFree && JOINED_LISTS.has(name);
    let changed: unknown[] | undefined;
    for (let i = 0; i < list.length; i++) {
      const item = list[i];
      const path = `${place.path}.${labelOf(item, i)}`;
      const below = { ...place, path, run: isJoined ? `${place.path}.*` : path };
      // A plain string among parts is a text part.
      const run = isJoined && typeof item === "string" ? `${below.run}.text` : below.run;
      const mapped = this.#member(holder, name, item, { ...below, run });
      if (mapped !== item) changed ??= list.slice();
      if (changed) changed[i] = mapped;
    }
    return changed ?? list;
  }

  #string(value: string, name: string, holder: Members, place: Place): string {
    const { path, run, isFree } = place;
    const { direction, resolve = plain } = this.#options;
    const at = { path, run, name, holder, isFree };
    if (!isFree) {
      if (isStructural(name, value)) return value;
      if (ENCODED_MEMBERS.has(name) || URL_MEMBERS.has(name)) {
        if (direction === "request" && REMOTE_URL.test(value)) return value;
        return this.#encoded(value, at, place.mediaType);
      }
    }
    const text = resolve(value);
    const mapped = this.#visit(text, at);
    return mapped === text ? value : mapped;
  }

  /** Card and phone numbers may be numbers in the arguments and results of tools. A changed number becomes a string. */
  #number(value: number, name: string, holder: Members, { path, run, isFree }: Place): unknown {
    const text = String(value);
    if (!isFree || text.length < MIN_GUARDED_DIGITS) return value;
    const mapped = this.#visit(text, { path, run, name, holder, isFree });
    return mapped === text ? value : mapped;
  }

  /** A short value, or a value declared as text, may be plain text, so it is checked in both forms. */
  #encoded(value: string, at: TextPlace, mediaType: string): string {
    const { resolve = plain } = this.#options;
    const isBase64 = ENCODED_MEMBERS.has(at.name);
    const start = resolve(value, SAMPLED_CHARACTERS);
    const isData = isBinary(start, isBase64, mediaType);
    if (isData && start.length >= SAMPLED_CHARACTERS) return value;
    const text = resolve(value);
    const decoded = isData ? undefined : decodeText(text, isBase64);
    const isPlain = decoded === undefined || text.length < SAMPLED_CHARACTERS || isTextType(mediaType);
    const mapped = isPlain ? this.#visit(text, at) : text;
    const inside = decoded && this.#visit(decoded.text, { ...at, path: `${at.path}~`, run: `${at.run}~` });
    if (mapped !== text) return mapped;
    return decoded === undefined || inside === undefined || inside === decoded.text ? value : decoded.encode(inside);
  }
}

/** Quickly rules out members without texts, such as numbers and identifiers. */
function mayHaveText(name: string, member: unknown): boolean {
  if (typeof member === "string") return !isStructural(name, member);
  return (typeof member === "object" && member !== null) || WITHHELD_MEMBERS.has(name);
}

function plain(text: string): string {
  return text;
}

function escaped(name: string): string {
  return name.replaceAll("~", "~0").replaceAll(".", "~1");
}

function isFreeMember(path: string, name: string, value: unknown): boolean {
  // `input` is a list of messages in the Responses API, and an object in a tool call.
  if (FREE_MEMBERS.has(name)) return isMembers(value) || (Array.isArray(value) && name !== "input");
  return name === "response" && /[fF]unction_?[rR]esponse$/.test(path);
}

function copyUpTo(value: Members, name: string): Record<string, unknown> {
  const copy: Record<string, unknown> = {};
  for (const [own, member] of Object.entries(value)) {
    if (own === name) break;
    putMember(copy, own, member);
  }
  return copy;
}

export class BodyTexts {
  readonly #body: Members;
  readonly #options: PlaceOptions;
  readonly #runs: string[][] = [];
  /** Maps each string to the index of its text, in body order. */
  readonly #order: number[] = [];

  constructor(body: Members, options: PlaceOptions) {
    this.#options = options;
    const known = new Map<string, number>();
    // The first pass removes withheld members.
    this.#body = mapTexts(body, options, (text, { run }) => {
      let index = known.get(run);
      if (index === undefined) {
        index = this.#runs.length;
        known.set(run, index);
        this.#runs.push([]);
      }
      this.#runs[index]?.push(text);
      this.#order.push(index);
      return text;
    });
  }

  get texts(): readonly string[] {
    return this.#runs.map((parts) => (parts.length === 1 ? (parts[0] as string) : parts.join("")));
  }

  /** `texts` must have the same length and order as the original texts. */
  replaced(texts: readonly string[]): Members {
    return this.#with(this.#runs.map((parts, i) => spreadText(parts, texts[i] ?? "")));
  }

  *guarded(guards: readonly TextGuard[], found?: GuardFound): Steps<Members> {
    yield;
    let isChanged = false;
    const guarded: (readonly string[])[] = [];
    for (const parts of this.#runs) {
      const seen = yield* guardParts(parts, guards, found);
      isChanged ||= seen !== parts;
      guarded.push(seen);
    }
    return isChanged ? this.#with(guarded) : this.#body;
  }

  #with(runs: readonly (readonly string[])[]): Members {
    const taken = runs.map(() => 0);
    let next = 0;
    return mapTexts(this.#body, this.#options, (text) => {
      const run = this.#order[next++] ?? 0;
      const part = taken[run] ?? 0;
      taken[run] = part + 1;
      return runs[run]?.[part] ?? text;
    });
  }
}
