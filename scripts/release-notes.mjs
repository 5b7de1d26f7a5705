/**
 * Reads CHANGELOG.md in the form of Keep a Changelog: the section of a version is its release notes.
 */
const DATE = /^\d{4}-\d{2}-\d{2}$/;

/** Returns the problems that prevent a release of the version. */
export function releaseProblems(changelog, version) {
  const section = sections(changelog).find((one) => one.version === version);
  if (section === undefined) return [`CHANGELOG.md has no section "## [${version}] - <date>"`];
  if (!DATE.test(section.date)) return [`CHANGELOG.md: the section of ${version} has no release date`];
  const unreleased = sections(changelog).find((one) => one.version === "Unreleased");
  return unreleased?.text ? [`CHANGELOG.md: move the lines of "Unreleased" to the section of ${version}`] : [];
}

export function releaseNotes(changelog, version) {
  const text = sections(changelog).find((one) => one.version === version)?.text ?? "";
  return `# MCP & LLM Gateway ${version}

${text}

## Files

| File | Content |
|---|---|
| \`mcp-llm-gateway-${version}.tgz\` | the npm package: \`npm install --global ./mcp-llm-gateway-${version}.tgz\` |
| \`gateway\` | one executable with Node, for the platform on which it was built |
| \`mcp-llm-gateway-${version}.cdx.json\` | the bundled packages (CycloneDX 1.6) |
| \`THIRD-PARTY-LICENSES.txt\` | the licenses of these packages |
| \`SHA256SUMS\` | checksums: \`sha256sum --check SHA256SUMS\` |
`;
}

/** Accepts `## Unreleased` and `## [1.2.3] - 2026-01-31`. */
function sections(changelog) {
  return changelog
    .split(/^## /m)
    .slice(1)
    .map((part) => {
      const [heading = "", ...lines] = part.split("\n");
      const [, version = heading.trim(), date = ""] = /^\[(.+?)\] - (.+)$/.exec(heading) ?? [];
      return { version, date: date.trim(), text: lines.join("\n").trim() };
    });
}
