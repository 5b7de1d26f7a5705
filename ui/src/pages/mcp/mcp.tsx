/** To come. */
export function Mcp() {
  return <h1>mcp</h1>;
}
