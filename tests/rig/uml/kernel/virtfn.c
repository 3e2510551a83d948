// SPDX-License-Identifier: GPL-2.0
/* The VFs of a simulated NIC, in sysfs where a PCI NIC has them: a device virtfnN below the NIC, with a network
 * interface. Becomes a part of netdevsim, which only counts VFs. The interfaces drop what they send, like netdevsim's.
 */

#include <linux/etherdevice.h>
#include <linux/ethtool.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <linux/slab.h>

#include "netdevsim.h"

struct nsim_virtfn {
	struct device dev;
	struct net_device *netdev;
};

static void nsim_virtfn_release(struct device *dev)
{
	kfree(container_of(dev, struct nsim_virtfn, dev));
}

static netdev_tx_t nsim_virtfn_xmit(struct sk_buff *skb, struct net_device *netdev)
{
	dev_kfree_skb(skb);
	return NETDEV_TX_OK;
}

static const struct net_device_ops nsim_virtfn_netdev_ops = {
	.ndo_start_xmit		= nsim_virtfn_xmit,
	.ndo_set_mac_address	= eth_mac_addr,
	.ndo_validate_addr	= eth_validate_addr,
};

static const struct ethtool_ops nsim_virtfn_ethtool_ops = {
	.get_link		= ethtool_op_get_link,
};

static void nsim_virtfn_setup(struct net_device *netdev)
{
	ether_setup(netdev);
	eth_hw_addr_random(netdev);
	netdev->priv_flags |= IFF_LIVE_ADDR_CHANGE | IFF_NO_QUEUE;
	netdev->max_mtu = ETH_MAX_MTU;
	netdev->netdev_ops = &nsim_virtfn_netdev_ops;
	netdev->ethtool_ops = &nsim_virtfn_ethtool_ops;
}

static int nsim_virtfn_add(struct nsim_bus_dev *nic, unsigned int number)
{
	struct nsim_virtfn *virtfn = kzalloc(sizeof(*virtfn), GFP_KERNEL);
	char name[IFNAMSIZ];
	int err;

	if (!virtfn)
		return -ENOMEM;
	device_initialize(&virtfn->dev);
	virtfn->dev.parent = &nic->dev;
	virtfn->dev.release = nsim_virtfn_release;
	err = dev_set_name(&virtfn->dev, "virtfn%u", number);
	if (!err)
		err = device_add(&virtfn->dev);
	if (err)
		goto err_put;

	snprintf(name, sizeof(name), "sim%uv%u", nic->dev.id, number);
	err = -ENOMEM;
	virtfn->netdev = alloc_netdev(0, name, NET_NAME_PREDICTABLE, nsim_virtfn_setup);
	if (!virtfn->netdev)
		goto err_del;
	SET_NETDEV_DEV(virtfn->netdev, &virtfn->dev);
	err = register_netdev(virtfn->netdev);
	if (err)
		goto err_free_netdev;
	dev_set_drvdata(&virtfn->dev, virtfn);
	return 0;

err_free_netdev:
	free_netdev(virtfn->netdev);
err_del:
	device_del(&virtfn->dev);
err_put:
	put_device(&virtfn->dev);
	return err;
}

static int nsim_virtfn_remove(struct device *dev, void *unused)
{
	struct nsim_virtfn *virtfn;

	if (dev->release != nsim_virtfn_release)
		return 0;
	virtfn = container_of(dev, struct nsim_virtfn, dev);
	unregister_netdev(virtfn->netdev);
	free_netdev(virtfn->netdev);
	device_unregister(dev);
	return 0;
}

void nsim_virtfns_remove(struct nsim_bus_dev *nic)
{
	device_for_each_child(&nic->dev, NULL, nsim_virtfn_remove);
}

int nsim_virtfns_add(struct nsim_bus_dev *nic, unsigned int count)
{
	unsigned int number;
	int err;

	if (!nic->drivers_autoprobe)
		return 0;
	for (number = 0; number < count; number++) {
		err = nsim_virtfn_add(nic, number);
		if (err)
			return err;
	}
	return 0;
}
