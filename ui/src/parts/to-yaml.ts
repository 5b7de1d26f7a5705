/**
 * Writes a JSON value as YAML. Lists of short values stay on one line.
 */
const MAX_FLOW_CHARS = 72;
/** A string is quoted unless it can only be read as this string. */
const PLAIN = /^[A-Za-z_/][\w./@+-]*(?: [\w./@+-]+)*$/;
const RESERVED = /^(?:true|false|null|yes|no|on|off|y|n)$/i;

export function toYaml(value: unknown): string {
  return lines(value).join("\n");
}

function lines(value: unknown): string[] {
  if (Array.isArray(value) && value.length > 0)
    return value.flatMap((item) => {
      const [first = "", ...rest] = lines(item);
      return [`- ${first}`, ...rest.map((line) => `  ${line}`)];
    });
  if (typeof value === "object" && value !== null && !Array.isArray(value) && Object.keys(value).length > 0)
    return Object.entries(value)
      .filter(([, item]) => item !== undefined)
      .flatMap(([key, item]) => field(stringText(key), item));
  return [scalarText(value)];
}

function field(key: string, value: unknown): string[] {
  const short = flowText(value);
  if (short !== undefined && key.length + short.length <= MAX_FLOW_CHARS) return [`${key}: ${short}`];
  const inner = lines(value);
  if (inner.length === 1 && !isBranch(value)) return [`${key}: ${inner[0]}`];
  return [`${key}:`, ...inner.map((line) => `  ${line}`)];
}

function isBranch(value: unknown): boolean {
  return typeof value === "object" && value !== null && Object.keys(value).length > 0;
}

function flowText(value: unknown): string | undefined {
  if (!isBranch(value)) return scalarText(value);
  if (!Array.isArray(value) || value.some(isBranch)) return undefined;
  return `[${value.map(scalarText).join(", ")}]`;
}

function scalarText(value: unknown): string {
  if (typeof value === "string") return stringText(value);
  if (typeof value === "object" && value !== null) return Array.isArray(value) ? "[]" : "{}";
  return String(value);
}

function stringText(text: string): string {
  return PLAIN.test(text) && !RESERVED.test(text) ? text : JSON.stringify(text);
}
