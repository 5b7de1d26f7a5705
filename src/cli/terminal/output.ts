/**
 * The `-o` formats of commands that print data.
 */
import { yamlText } from "../../base/yaml-text.ts";
import { printable, type Terminal, usageError } from "./terminal.ts";

export const FORMATS = ["text", "json", "yaml"] as const;
export type DataFormat = "json" | "yaml";

/** Throws a usage error unless `output` is one of the formats. Undefined means the first one. */
export function formatOf<Format extends string>(output: string | undefined, formats: readonly Format[]): Format {
  const format = formats.find((one) => one === (output ?? formats[0]));
  if (format === undefined) throw usageError(`output format "${output}" is not ${listed(formats)}`);
  return format;
}

export function isData(format: string): format is DataFormat {
  return format === "json" || format === "yaml";
}

export function printData(value: unknown, format: DataFormat, terminal: Terminal): void {
  terminal.out(printable(format === "json" ? `${JSON.stringify(value, null, 2)}\n` : yamlText(value)));
}

/** Prints one of many values: a line of JSON, or a YAML document. */
export function printRecord(value: unknown, format: DataFormat, terminal: Terminal): void {
  terminal.out(printable(format === "json" ? `${JSON.stringify(value)}\n` : `---\n${yamlText(value)}`));
}

function listed(formats: readonly string[]): string {
  return `${formats.slice(0, -1).join(", ")} or ${formats.at(-1)}`;
}
