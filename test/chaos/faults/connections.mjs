/**
 * Connections to backends that break in the middle, crawl, or carry nothing for a while.
 */
const NOTICED_BY = { web: ["http", "stream", "websocket"], mcp: ["mcp http"], llm: ["llm"] };

export const connectionFaults = Object.entries(NOTICED_BY).flatMap(([role, explains]) => {
  const row = (name, weather, bytes, recoveryMs = 1_500) => ({
    name: `${role} ${name}`,
    uses: role,
    explains,
    forMs: [300, 2_000],
    recoveryMs,
    begin({ links }, random) {
      links[role].set(weather, random.between(...bytes));
      return () => links[role].set("pass");
    },
  });
  return [
    row("connections cut", "cut", [1, 20_000]),
    row("connections cut in the head", "cut", [1, 300]),
    row("bytes slow", "slow", [1, 2_000]),
    row("silent", "silent", [0, 0]),
  ];
});
