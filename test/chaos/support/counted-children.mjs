/**
 * How many children the gateway itself counts, by which it admits new ones. A count that is higher than the system's
 * has lost one that ended, and sooner or later no session is opened any more.
 */
export async function countedChildren({ adminUrl }) {
  const { tasks } = await (await fetch(`${adminUrl}/debug/tasks`)).json();
  const backends = tasks.filter(({ kind }) => kind === "mcp backend");
  if (backends.length === 0) throw new Error("the gateway reports no MCP backend");
  return backends.reduce((sum, { detail }) => sum + detail.children, 0);
}
