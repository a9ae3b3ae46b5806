import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vite';

// The gateway embeds what is built here; names with hashes let browsers keep scripts for good.
export default defineConfig({
  base: '/console/',
  plugins: [svelte()],
  build: {
    outDir: '../gateway/assets/console',
    emptyOutDir: true,
    target: 'es2022',
    // Inlined files would need data: URLs, which the policy of the page allows for pictures alone.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
});
