/**
 * What a member's name in an LLM request says about its value, in any dialect: prompt, definition, protocol word,
 * picture. Names are recognised by their bytes: making a string of every key would cost more than the rest of an
 * estimate.
 */

/** Members of the outermost object that become input. */
export const PROMPT = 1;
/** The same, and their property names become input as well. */
export const DEFINITIONS = 2;
/** Words of the protocol, not of the prompt. */
export const SILENT = 4;
/** A picture or a file, or its address. */
export const MEDIA = 8;
/** A picture or a file if it stands below a `HOLDER`; a tool's argument may have the same name. */
export const CONTENT = 16;
export const HOLDER = 32;
export const ROLE = 64;

const NAMES: readonly (readonly [flag: number, names: string])[] = [
  [
    PROMPT,
    "messages input prompt system instructions contents systemInstruction system_instruction content requests query documents inputText inputs",
  ],
  [DEFINITIONS, "tools functions toolConfig response_format text output_config"],
  [
    SILENT,
    "role type id tool_call_id call_id tool_use_id toolUseId mime_type mimeType media_type format detail signature thoughtSignature thought_signature encrypted_content ttl",
  ],
  [MEDIA, "image_url file_data file_id file_uri fileUri"],
  [CONTENT, "data bytes url uri"],
  [HOLDER, "image_url source inlineData inline_data fileData file file_data input_audio audio s3Location video_url"],
  [ROLE, "role"],
];

interface Entry {
  readonly name: Uint8Array;
  readonly flags: number;
}

const SLOTS = 512;
const LONGEST = 32;
const TABLE: readonly (readonly Entry[] | undefined)[] = buildTable();

/** The flags of the name between two quotes; 0 for a name that nobody gave a meaning. */
export function flagsOfKey(bytes: Uint8Array, start: number, end: number): number {
  const length = end - start;
  if (length === 0 || length > LONGEST) return 0;
  const entries = TABLE[slotOf(length, bytes[start] as number, bytes[end - 1] as number)];
  if (entries === undefined) return 0;
  for (const { name, flags } of entries) {
    let same = name.length === length;
    for (let i = 0; same && i < length; i++) same = name[i] === bytes[start + i];
    if (same) return flags;
  }
  return 0;
}

function slotOf(length: number, first: number, last: number): number {
  return (length * 37 + first * 5 + last) % SLOTS;
}

function buildTable(): (readonly Entry[] | undefined)[] {
  const flagsByName = new Map<string, number>();
  for (const [flag, names] of NAMES)
    for (const name of names.split(" ")) flagsByName.set(name, (flagsByName.get(name) ?? 0) | flag);
  const table = new Array<Entry[] | undefined>(SLOTS).fill(undefined);
  for (const [text, flags] of flagsByName) {
    const name = Buffer.from(text);
    const slot = slotOf(name.length, name[0] as number, name[name.length - 1] as number);
    table[slot] = [...(table[slot] ?? []), { name, flags }];
  }
  return table;
}
