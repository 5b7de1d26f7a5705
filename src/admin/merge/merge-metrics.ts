/**
 * Metrics of several threads as one text: the same series of all threads are added. Everything that is counted here adds
 * up: counters, the buckets of histograms, and gauges, which all say how many of something there are.
 */
interface Family {
  /** `# HELP` and `# TYPE`. */
  readonly head: string[];
  /** Name and labels → sum. */
  readonly series: Map<string, number>;
}

export function mergeMetrics(texts: readonly string[]): string {
  const families = new Map<string, Family>();
  for (const text of texts) addText(families, text);
  let merged = "";
  for (const { head, series } of families.values()) {
    merged += head.map((line) => `${line}\n`).join("");
    for (const [name, value] of series) merged += `${name} ${value}\n`;
  }
  return merged;
}

function addText(families: Map<string, Family>, text: string): void {
  let family: Family = { head: [], series: new Map() };
  for (const line of text.split("\n")) {
    if (line === "") continue;
    if (line.startsWith("#")) {
      const name = line.split(" ", 3)[2] ?? "";
      const known = families.get(name);
      family = known ?? { head: [], series: new Map() };
      if (!known) families.set(name, family);
      if (!family.head.includes(line)) family.head.push(line);
      continue;
    }
    const at = line.lastIndexOf(" ");
    const name = line.slice(0, at);
    family.series.set(name, (family.series.get(name) ?? 0) + Number(line.slice(at + 1)));
  }
}
