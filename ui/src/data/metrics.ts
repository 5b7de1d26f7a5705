/**
 * Parses the Prometheus text format. Label values come from traffic and can contain any escaped character.
 */

export interface Sample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

export function parseMetrics(text: string): Sample[] {
  const samples: Sample[] = [];
  for (const line of text.split("\n")) {
    if (line === "" || line.startsWith("#")) continue;
    const sample = parseLine(line);
    if (sample) samples.push(sample);
  }
  return samples;
}

const LABEL = /([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)",?/y;

function parseLine(line: string): Sample | undefined {
  const brace = line.indexOf("{");
  const space = line.indexOf(" ");
  if (brace < 0 || (space >= 0 && space < brace)) {
    const value = Number(line.slice(space + 1));
    return space < 0 || Number.isNaN(value) ? undefined : { name: line.slice(0, space), labels: {}, value };
  }
  const labels: Record<string, string> = {};
  LABEL.lastIndex = brace + 1;
  let at = brace + 1;
  for (let match = LABEL.exec(line); match; match = LABEL.exec(line)) {
    labels[match[1] ?? ""] = unescapeValue(match[2] ?? "");
    at = LABEL.lastIndex;
  }
  if (line[at] !== "}") return undefined;
  const value = Number(
    line
      .slice(at + 1)
      .trim()
      .split(" ", 1)[0],
  );
  return Number.isNaN(value) ? undefined : { name: line.slice(0, brace), labels, value };
}

function unescapeValue(text: string): string {
  return text.replace(/\\(.)/g, (_whole, char: string) => (char === "n" ? "\n" : char));
}
